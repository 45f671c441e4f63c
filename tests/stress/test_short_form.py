"""The stress suite in its short form."""

from __future__ import annotations

import pytest

from tests.stress.rows import interrupts, long_form, short_form
from tests.stress.streams import Counting, Endless

#: Shown by quicker tests as well: resumes and stops in tests/processes, leaks in engine/test_worker_memory.py; that nothing grows
#: also by the row of batches.
RARELY = ("resumes", "stops", "leaks", "epochs")


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "row", [pytest.param(row, marks=pytest.mark.slow) if row in RARELY else row for row in short_form()]
)
def test_nothing_that_is_done_to_the_processes_changes_a_batch_or_leaks(row: str) -> None:
    outcome = short_form()[row]()
    assert outcome.batches > 0
    assert outcome.passed, outcome


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("kind", "processes", "within"),
    [(Endless, 2, 0.006), pytest.param(Endless, 0, 0.006, marks=pytest.mark.slow), (Counting, 0, 0.2)],
)
def test_no_interrupt_changes_a_batch(kind: type[Endless], processes: int, within: float) -> None:
    outcome = interrupts(200, 30, kind, processes, within)
    assert outcome.passed, outcome


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("number", range(len(long_form())))
def test_the_long_form_finds_nothing(number: int) -> None:
    outcome = long_form()[number]()
    assert outcome.passed, outcome
