"""`detaug.verify`: run a pipeline under many circumstances, compare, and find the cause of what
differs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from detaug.engine.errors_from_workers import describe
from detaug.errors import UnusableError
from detaug.pipeline.plan import BatchKey
from detaug.seeding.generators import preserved_global_rngs
from detaug.system.platform import refuse_workers
from detaug.system.progress import Progress
from detaug.verification.augmenter_runs import (
    DEFAULT_BATCHES,
    RESUMED,
    RESUMED_BY_STEPPING,
    RealRuns,
    Reference,
)
from detaug.verification.causes import Experiment, causes_of, experiments
from detaug.verification.factories import Factory, NotPicklable, load_factory
from detaug.verification.result import Cause, Result, Row
from detaug.verification.rows import DIFFERENT, EQUAL, FAILED, NOT_RUN, PendingRow, run_rows
from detaug.verification.trials import Interpreters, TrialFailed


def verify(
    factory: Factory | str,
    *,
    batches: int = DEFAULT_BATCHES,
    seed: int | Sequence[int] | None = None,
    processes: Sequence[int] | None = None,
    start_methods: Sequence[str] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Result:
    """Prove that a pipeline is deterministic under DeterministicAugmenter, or find what is not.

    Args:
        factory: gives a freshly made pipeline at every call: (loader, transform), where the
            transform may be None; a map-style data set, or (data set, transform), as for
            `DeterministicAugmenter.from_dataset`, with shuffled batches of four samples; or a
            DeterministicAugmenter, whose loader, transform, seed, name, num_streams, stateless,
            batches_per_epoch and keep are taken. Or where the factory is, as ``"module:factory"``
            or ``"path/to/file.py:factory"``. Called some thirty times.
        batches: how many every row compares.
        seed: the one seed of all rows; None: the augmenter's own, else 1234.
        processes: process counts; None: 1, 2 and 3.
        start_methods: None: this system's default and "spawn".
        progress: called with what is being done, how many rows are done, and how many there are.

    Returns:
        A verdict for each row, and the causes of what differs. ``print`` shows it as a table;
        ``.ok`` is False if any row differs or could not be measured.

    Raises:
        RuntimeError: there can be no worker processes on this system.
        UnusableError: (a ValueError) the factory does not give a pipeline that makes batches that
            can be compared.
        TypeError, ValueError: another argument is invalid.
    """
    refuse_workers("detaug.verify")
    began = time.perf_counter()
    made = load_factory(factory) if isinstance(factory, str) else factory
    real = RealRuns(made, batches, seed, processes, start_methods)
    if not callable(made):
        raise UnusableError(
            f"the factory must be callable, got {made!r} of type {type(made).__name__}"
        )
    with preserved_global_rngs():
        found = _verified(real, Progress(told=progress))
    notes = found.notes
    if found.batches < batches:
        notes += (f"the loader gave {found.batches} of {batches} batches",)
    return replace(found, notes=notes, seconds=time.perf_counter() - began)


def _verified(real: RealRuns, progress: Progress) -> Result:
    found: list[Reference] = []

    def make_reference() -> Row:
        found.append(real.reference())
        return Row.of("0 processes", len(found[0].prints), [])

    rows = list(run_rows([PendingRow("0 processes", make_reference)], progress))
    (reference,) = found
    differing: dict[Experiment, list[BatchKey]] = {}
    with closing(Interpreters(reference)) as interpreters:

        def answer(experiment: Experiment) -> Row:
            different, raised = experiment.run(interpreters)
            if different:
                differing[experiment] = different
            elif raised:  # it has no bytes that could be compared
                raise TrialFailed(f"in these circumstances, {raised}")
            made = len(interpreters.outcome(experiment.still).prints)
            return Row.of(experiment.what, made, different)

        asked = [
            PendingRow(each.what, partial(answer, each))
            for each in experiments(tuple(reference.keys))
        ]
        rows += run_rows(map(_measured, [*real.rows(reference), *asked]), progress)
        progress.update("looking for the cause", done=progress.total)
        causes = causes_of(interpreters, differing)
    if not causes:
        causes = _causes_by_row(rows)
    made = len(reference.prints)
    same = (f"all {made} batches are the same",) if len(set(reference.prints)) == 1 < made else ()
    notes = (*rows[0].notices, *same, *real.notes(reference))
    return Result(tuple(rows), causes, notes, made, reference.branch.tree.seed)


def _causes_by_row(rows: Sequence[Row]) -> tuple[Cause, ...]:
    """Return what the differing rows alone say of the cause."""
    verdicts = {row.what: row.verdict for row in rows}
    differing = [name for name, verdict in verdicts.items() if verdict == DIFFERENT]
    if not differing:
        return ()
    if differing == [RESUMED] and verdicts.get(RESUMED_BY_STEPPING) == EQUAL:
        text = (
            "the loader's state_dict() or load_state_dict() leaves something out: batches differ "
            "after a resume through it, and not after a resume that steps the loader forward"
        )
    else:
        text = f"the pipeline depends on something that only shows with: {'; '.join(differing)}"
    return (Cause(text),)


def _measured(planned: PendingRow[Row]) -> PendingRow[Row]:
    """A row that fails alone: what could not be measured says nothing of the pipeline."""

    def run() -> Row:
        try:
            return planned.run()
        except UnusableError as error:
            return Row(
                planned.what,
                NOT_RUN if isinstance(error, NotPicklable) else FAILED,
                detail=str(error),
            )
        except Exception as error:
            return Row(planned.what, FAILED, detail=describe(error).summary.splitlines()[0])

    return replace(planned, run=run)
