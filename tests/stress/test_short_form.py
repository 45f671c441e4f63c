"""The stress suite in its short form."""

from __future__ import annotations

import pytest

from tests.stress.rows import ROWS

#: Shown by quicker tests in tests/processes as well.
RARELY = ("stops", "kills, forkserver", "kills, spawn")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.slow) if row in RARELY else row for row in ROWS]
)
def test_nothing_that_is_done_to_the_processes_changes_a_batch_or_leaks(row: str) -> None:
    assert ROWS[row](True).batches > 0
