"""`detaug.verify`: run a pipeline under many circumstances, compare, and find the cause of what differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial

from detaug.engine.failures import describe
from detaug.errors import UnusableError
from detaug.pipeline.plan import BatchKey
from detaug.reports.progress import Progress
from detaug.reports.rows import DIFFERENT, FAILED, NOT_RUN, Planned, run_rows
from detaug.seeding.generators import preserved_global_rngs
from detaug.verification.causes import FACTORS, Experiment, causes_of, differing
from detaug.verification.handed_in import CannotTravel, Factory
from detaug.verification.real_runs import DEFAULT_BATCHES, RealRuns, Reference, Settings
from detaug.verification.result import Cause, Result, Row
from detaug.verification.target import load_factory
from detaug.verification.trials import Interpreters, Subject, Trial, TrialFailed

#: Every batch that is made alone costs a process.
_MOST_ALONE = 4


def verify(
    factory: Factory | str,
    *,
    batches: int = DEFAULT_BATCHES,
    seed: int | Sequence[int] | None = None,
    processes: Sequence[int] | None = None,
    start_methods: Sequence[str] | None = None,
    hash_seeds: Sequence[int] | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> Result:
    """Prove that a pipeline is deterministic under DeterministicAugmenter, or find what is not.

    Args:
        factory: gives a freshly made pipeline at every call: (loader, transform), where the transform may be None; a
            map-style data set, or (data set, transform), as for `DeterministicAugmenter.from_dataset`, with
            shuffled batches of four samples; or a DeterministicAugmenter, whose loader, transform, seed, name,
            num_streams, stateless, batches_per_epoch and keep are taken. Or where the factory is, as
            ``"module:factory"`` or ``"path/to/file.py:factory"``. Called some thirty times.
        batches: how many every row compares.
        seed: the one seed of all rows; None: the augmenter's own, else 1234.
        processes: process counts; None: 1, 2 and 3.
        start_methods: None: this system's default and "spawn".
        hash_seeds: PYTHONHASHSEED of other interpreters; None: 1 and 2; with fewer than two there is no such row.
        progress: called with what is being done, how many rows are done, and how many there are.

    Returns:
        A verdict for each row, and the causes of what differs. ``print`` shows it as a table; ``.ok`` is False if any row
        differs or could not be measured.

    Raises:
        UnusableError: (a ValueError) the factory does not give a pipeline that makes batches that can be compared.
        TypeError, ValueError: another argument is invalid.
    """
    began = time.perf_counter()
    settings = Settings(batches, seed, processes or (), start_methods or (), hash_seeds).checked()
    made = load_factory(factory) if isinstance(factory, str) else factory
    if not callable(made):
        raise UnusableError(f"the factory must be callable, got {made!r} of type {type(made).__name__}")
    with preserved_global_rngs():
        return replace(_verified(made, settings, Progress(told=progress)), seconds=time.perf_counter() - began)


def _verified(factory: Factory, settings: Settings, progress: Progress) -> Result:
    real = RealRuns(factory, settings)
    found: list[Reference] = []

    def make_reference() -> Row:
        found.append(real.reference())
        return Row.of("0 processes", len(found[0].prints), [], detail="the reference")

    rows = list(run_rows([Planned("0 processes", make_reference)], progress))
    (reference,) = found
    subject = Subject(factory, reference.branch, reference.batches_per_epoch)
    hash_seeds = tuple(settings.hash_seeds or ())
    shown: list[tuple[Experiment, list[BatchKey]]] = []
    with closing(Interpreters(subject, hash_seeds[0] if hash_seeds else 1)) as interpreters:

        def answer(experiment: Experiment) -> Row:
            still, changed = experiment.run(interpreters)
            different = differing(still, changed)
            if different:
                shown.append((experiment, different))
            elif raised := still.raised or changed.raised:  # it has no bytes that could be compared
                raise TrialFailed(f"in these circumstances, {raised}")
            return Row.of(experiment.what, len(still.prints), different)

        asked = [Planned(each.what, partial(answer, each)) for each in _experiments(reference.keys, hash_seeds)]
        rows += run_rows(map(_measured, [*real.runs(reference), *asked]), progress)
        progress.update("looking for the cause", done=progress.total)
        causes = _causes(interpreters, shown)
        notes = _notes(reference, settings)
    if not causes and any(row.verdict == DIFFERENT for row in rows):
        differ = "; ".join(row.what for row in rows if row.verdict == DIFFERENT)
        causes = (Cause(f"the pipeline depends on something that only shows with: {differ}"),)
    notices = list(rows[0].notices)
    return Result(tuple(rows), causes, (*notices, *notes), len(reference.prints), reference.branch.tree.seed)


def _experiments(keys: list[BatchKey], hash_seeds: Sequence[int]) -> list[Experiment]:
    """One for each thing that is changed."""
    order = tuple(dict.fromkeys(keys))
    still = Trial(order)
    found = []
    for factor in FACTORS:
        if factor == "hash":
            others = tuple(replace(still, hash_seed=seed) for seed in hash_seeds[1:])
            what = f"other interpreters, PYTHONHASHSEED {', '.join(map(str, hash_seeds))}"
            found += [Experiment(factor, what, still, others)] if others else []
        else:
            found.append(Experiment.of(factor, _in_two_epochs(order) if factor == "alone" else order))
    return found


def _in_two_epochs(order: tuple[BatchKey, ...]) -> tuple[BatchKey, ...]:
    """The first batches of epoch 0, and those of epoch 2."""
    first = order[0].epoch
    steps = [key.step for key in order if key.epoch == first][:_MOST_ALONE]
    return tuple(BatchKey(epoch, step) for epoch in (first, first + 2) for step in steps)


def _measured(planned: Planned[Row]) -> Planned[Row]:
    """A row that fails alone: what could not be measured says nothing of the pipeline."""

    def run() -> Row:
        try:
            return planned.run()
        except CannotTravel as error:
            return Row(planned.what, NOT_RUN, detail=str(error))
        except (UnusableError, TrialFailed) as error:
            return Row(planned.what, FAILED, detail=str(error))
        except Exception as error:
            return Row(planned.what, FAILED, detail=describe(error).summary.splitlines()[0])

    return replace(planned, run=run)


def _causes(interpreters: Interpreters, shown: list[tuple[Experiment, list[BatchKey]]]) -> tuple[Cause, ...]:
    factors = {experiment.factor for experiment, _ in shown}
    if "nothing" in factors:  # then every other experiment differs as well, and shows nothing
        shown = [each for each in shown if each[0].factor == "nothing"]
    elif "history" in factors:  # then what differs alone does so for the same reason
        shown = [each for each in shown if each[0].factor != "alone"]
    found: dict[object, Cause] = {}
    for experiment, different in shown:
        try:
            causes = causes_of(interpreters, experiment, different[0])
        except TrialFailed as error:
            causes = [Cause(f"the search for the cause ({experiment.what}) was stopped: {error}")]
        for cause in causes:
            found.setdefault(cause.site or cause.what, cause)
    if "randomness" in factors and any(cause.site for cause in found.values()):
        # What no seed governs depends on what was drawn before: history without a line is that same fault.
        found = {key: cause for key, cause in found.items() if cause.site is not None}
    return tuple(found.values())


def _notes(reference: Reference, settings: Settings) -> list[str]:
    notes = []
    if len(set(reference.prints)) == 1 and len(reference.prints) > 1:
        notes.append(f"all {len(reference.prints)} batches are the same")
    if len(reference.prints) < settings.batches:
        notes.append(f"the loader gave {len(reference.prints)} of {settings.batches} batches")
    return notes
