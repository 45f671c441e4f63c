"""`detaug.verify`: run a pipeline under many circumstances, and find why its batches differ."""

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
from detaug.verification.notes import notes_on_values
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
        factory: returns a new pipeline at every call: (loader, transform), where the transform may
            be None; a map-style data set, or (data set, transform), as for
            `DeterministicAugmenter.from_dataset`, with shuffled batches of four samples; or a
            DeterministicAugmenter, whose loader, transform, seed, name, num_streams, stateless,
            batches_per_epoch and keep are used. Or where the factory is, as ``"module:factory"``
            or ``"path/to/file.py:factory"``. Called some thirty times.
        batches: number of batches that every row compares.
        seed: the one seed of all rows; None: the augmenter's own, else 1234.
        processes: numbers of worker processes; None: 1, 2 and 3. There is always a row of 0
            processes, which the others are compared with.
        start_methods: None: this system's default and "spawn".
        progress: called with the current action, the number of rows done, and that of all rows.

    Returns:
        A verdict for each row, and the causes of what differs. ``print`` shows it as a table;
        ``.ok`` is False if any row differs or could not be measured.

    Raises:
        RuntimeError: there can be no worker processes on this system.
        UnusableError: (a ValueError) the factory gives no pipeline whose batches can be compared.
        TypeError, ValueError: another argument is invalid.
    """
    refuse_workers("detaug.verify")
    began = time.perf_counter()
    if isinstance(factory, str):
        factory = load_factory(factory)
    runs = RealRuns(factory, batches, seed, processes, start_methods)
    if not callable(factory):
        raise UnusableError(
            f"the factory must be callable, got {factory!r} of type {type(factory).__name__}"
        )
    # The rows scramble global states, which the calling program may still draw from.
    with preserved_global_rngs():
        result = _verify(runs, Progress(on_action=progress))
    notes = result.notes
    if result.batches < batches:
        notes += (f"the loader gave {result.batches} of {batches} batches",)
    return replace(result, notes=notes, seconds=time.perf_counter() - began)


def _verify(runs: RealRuns, progress: Progress) -> Result:
    """Make the reference, run all other rows, and look for the causes of differences."""
    references: list[Reference] = []

    def run_reference() -> Row:
        references.append(runs.reference())
        return Row.of("0 processes", len(references[0].fingerprints), [])

    # First and alone: an error here is raised, since no other row can be run without it.
    rows = list(run_rows([PendingRow("0 processes", run_reference)], progress))
    (reference,) = references
    differing: dict[Experiment, list[BatchKey]] = {}
    with closing(Interpreters(reference)) as interpreters:
        pending = list(runs.rows(reference))
        for experiment in experiments(tuple(reference.keys)):
            run = partial(_run_experiment, experiment, interpreters, differing)
            pending.append(PendingRow(experiment.name, run))
        rows += run_rows(map(_measured, pending), progress)
        progress.update("looking for the cause", done=progress.total)
        # With the rows' interpreters, which have cached the outcomes of their trials.
        causes = causes_of(interpreters, differing)
        has_differences = any(row.verdict == DIFFERENT for row in rows)
        on_values = notes_on_values(reference, runs.values(), interpreters, has_differences)
    if not causes:
        causes = _causes_by_row(rows)
    num_batches = len(reference.fingerprints)
    notes = list(rows[0].notices)
    if num_batches > 1 and len(set(reference.fingerprints)) == 1:
        notes.append(f"all {num_batches} batches are the same")
    notes += runs.notes(reference)
    notes += on_values
    return Result(tuple(rows), causes, tuple(notes), num_batches, reference.branch.tree.seed)


def _run_experiment(
    experiment: Experiment,
    interpreters: Interpreters,
    differing: dict[Experiment, list[BatchKey]],
) -> Row:
    """Run an experiment's row, and add the batches that differ to `differing`.

    Raises:
        TrialFailed: a batch could not be made, and all others are equal.
    """
    different, raised = experiment.run(interpreters)
    if different:
        differing[experiment] = different
    elif raised:
        # Equal batches say nothing if the one that failed has no bytes to be compared.
        raise TrialFailed(f"in these circumstances, {raised}")
    num_batches = len(interpreters.outcome(experiment.still).fingerprints)
    return Row.of(experiment.name, num_batches, different)


def _causes_by_row(rows: Sequence[Row]) -> tuple[Cause, ...]:
    """Return the cause that the differing rows alone suggest; none if all rows are equal."""
    verdicts = {row.what: row.verdict for row in rows}
    differing = [name for name, verdict in verdicts.items() if verdict == DIFFERENT]
    if not differing:
        return ()
    # These two rows differ only in whether the loader's own state is used.
    if differing == [RESUMED] and verdicts.get(RESUMED_BY_STEPPING) == EQUAL:
        text = (
            "the loader's state_dict() or load_state_dict() leaves something out: batches differ "
            "after a resume through it, and not after a resume that steps the loader forward"
        )
    else:
        text = f"the pipeline depends on something that only shows with: {'; '.join(differing)}"
    return (Cause(text),)


def _measured(pending: PendingRow[Row]) -> PendingRow[Row]:
    """Return the row with failures as its verdict: they say nothing of the pipeline."""

    def run() -> Row:
        try:
            return pending.run()
        except NotPicklable as error:
            return Row(pending.what, NOT_RUN, detail=str(error))
        except UnusableError as error:
            return Row(pending.what, FAILED, detail=str(error))
        except Exception as error:
            return Row(pending.what, FAILED, detail=describe(error).summary.splitlines()[0])

    return replace(pending, run=run)
