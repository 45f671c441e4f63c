"""The stress suite in its short form."""

from __future__ import annotations

import pytest

from tests.stress.rows import ROWS, run_row

#: Quicker tests in tests/processes show the same.
_SLOW_ROWS = ("stops", "kills, forkserver", "kills, spawn")


def _row(name: str) -> object:
    marks = [pytest.mark.slow] if name in _SLOW_ROWS else []
    return pytest.param(name, marks=marks)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("name", [_row(name) for name in ROWS])
def test_nothing_that_is_done_to_the_processes_changes_a_batch_or_leaks(name: str) -> None:
    assert run_row(name, is_short=True).batches > 0
