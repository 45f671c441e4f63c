"""The stress suite in its short form."""

from __future__ import annotations

import pytest

from tests.stress.rows import ROWS

#: Shown by quicker tests in tests/processes as well.
RARELY = ("stops", "kills, forkserver", "kills, spawn")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("row", [pytest.param(row, marks=pytest.mark.slow) if row in RARELY else row for row in ROWS])
def test_nothing_that_is_done_to_the_processes_changes_a_batch_or_leaks(row: str) -> None:
    outcome = ROWS[row](True)
    assert outcome.batches > 0
    assert outcome.passed, outcome


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("row", ROWS)
def test_the_long_form_finds_nothing(row: str) -> None:
    outcome = ROWS[row](False)
    assert outcome.passed, outcome
