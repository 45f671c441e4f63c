"""`detaug.verify`: run a pipeline under every circumstance, compare, and find the cause of what differs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from detaug.engine.error_record import describe
from detaug.pipeline.plan import BatchKey
from detaug.reports.notices import collected_notices
from detaug.reports.progress import Progress
from detaug.reports.rows import DIFFERENT, FAILED, NOT_RUN, REPAIRED, Planned, run_rows
from detaug.seeding.branch import SeedBranch
from detaug.seeding.global_generators import preserved_global_rngs
from detaug.seeding.tree import SeedTree
from detaug.verification.diagnosis import Experiment, causes_of, differing
from detaug.verification.handed_in import CannotTravel, Factory, UnusableError
from detaug.verification.result import Cause, Result, Row, Stateless
from detaug.verification.rows.experiments import Question, questions
from detaug.verification.rows.real_runs import RealRuns, Reference
from detaug.verification.rows.statelessness import judge_statelessness
from detaug.verification.settings import DEFAULT_BATCHES, DEFAULT_SEARCH_SECONDS, Settings
from detaug.verification.target import load_factory
from detaug.verification.trials.bench import Outcome, Raised, SearchStopped, SharedState, Subject, Trial


def verify(
    factory: Factory | str,
    *,
    batches: int = DEFAULT_BATCHES,
    seed: int | Sequence[int] | None = None,
    thorough: bool = False,
    processes: Sequence[int] | None = None,
    start_methods: Sequence[str] | None = None,
    hash_seeds: Sequence[int] | None = None,
    stateless: bool | None = None,
    num_streams: int | None = None,
    batches_per_epoch: int | None = None,
    search_seconds: float | None = DEFAULT_SEARCH_SECONDS,
    progress: Callable[[str, int, int], None] | None = None,
) -> Result:
    """Prove that a pipeline is deterministic under DeterministicAugmenter, or find the line that is not.

    Args:
        factory: gives a freshly made pipeline at every call: (loader, transform), where the transform may be None; a
            map-style data set, or (data set, transform), as for `DeterministicAugmenter.from_dataset`, with
            shuffled batches of four samples; or a DeterministicAugmenter, whose loader, transform, seed, name,
            num_streams, stateless, batches_per_epoch and keep are taken. Or where the factory is, as
            ``"module:factory"`` or ``"path/to/file.py:factory"``. Called some forty times.
        batches: how many every row compares.
        seed: the one seed of all rows; None: the augmenter's own, else 1234.
        thorough: every process count with every start method, more faults and more hash seeds: takes minutes.
        processes: process counts; None: 1, 2 and 3, or with `thorough` 1, 2, 3, 5 and 8.
        start_methods: None: this system's default and "spawn", or with `thorough` all.
        hash_seeds: PYTHONHASHSEED of other interpreters; None: two, or with `thorough` four; with fewer than two there
            is no such row.
        stateless, num_streams, batches_per_epoch: as for DeterministicAugmenter; None: as the factory's augmenter has it.
        search_seconds: limit of the search for lines that differ, after which the report has what is known; None: no
            limit.
        progress: called with what is being done, how many rows are done, and how many there are.

    Returns:
        A verdict for each row, the causes of what differs, and whether the loader may be declared stateless. ``print``
        shows it as a table; ``.ok`` is False if any row of DeterministicAugmenter's own differs.

    Raises:
        UnusableError: (a ValueError) the factory does not give a pipeline that makes batches that can be compared.
        TypeError, ValueError: another argument is invalid.
    """
    settings = Settings(
        batches,
        seed,
        thorough,
        processes or (),
        start_methods or (),
        hash_seeds,
        stateless,
        num_streams,
        batches_per_epoch,
        search_seconds,
    ).checked()
    made = load_factory(factory) if isinstance(factory, str) else factory
    if not callable(made):
        raise UnusableError(f"the factory must be callable, got {made!r} of type {type(made).__name__}")
    with preserved_global_rngs():
        return _Verification(made, settings, Progress(told=progress)).result()


class _Verification:
    def __init__(self, factory: Factory, settings: Settings, progress: Progress) -> None:
        self._factory = factory
        self._settings = settings
        self._progress = progress
        self._rows: list[Row] = []
        self._shown: list[tuple[Question, Experiment, list[BatchKey]]] = []
        self._notes: list[str] = []
        self._still: dict[Trial, Outcome] = {}  # what every experiment is compared with is made once

    def result(self) -> Result:
        began = time.perf_counter()
        real = RealRuns(self._factory, self._settings)
        self._rows += run_rows([Planned("0 processes", partial(self._make_reference, real))], self._progress)
        self._notes += self._rows[0].notices
        reference = self._reference
        subject = Subject(
            self._factory,
            reference.branch,
            self._settings.stateless,
            batches_per_epoch=reference.batches_per_epoch,
        )
        asked = questions(reference.keys, self._settings.hash_seeds or (), self._settings.thorough)
        planned = [Planned(question.what, partial(self._answer, subject, question)) for question in asked]
        for row in run_rows(map(_measured, [*real.runs(reference), *planned]), self._progress):
            self._rows.append(row)
            # Rows that make batches in this process change what classes and modules keep, which the next row would meet.
            self._pristine.put_back()
        with collected_notices():
            self._tell("is the loader stateless?")
            try:
                stateless = judge_statelessness(
                    subject,
                    reference.keys,
                    self._settings.stateless is None and reference.stateless,
                    self._settings.search_seconds,
                )
            except Exception as error:
                stateless = Stateless(False, f"it could not be found out: {_told(error)}")
            causes = self._causes(subject, reference.keys)
        self._take_notes(reference)
        return Result(
            tuple(self._rows),
            causes,
            stateless,
            tuple(self._notes),
            len(reference.prints),
            reference.branch.seed,
            time.perf_counter() - began,
        )

    def _tell(self, what: str) -> None:
        self._progress.update(what, done=self._progress.total)

    def _make_reference(self, real: RealRuns) -> Row:
        self._pristine = self._shared_state()
        self._reference = real.reference()
        self._pristine.put_back()
        return Row.of("0 processes", len(self._reference.prints), [], detail="the reference")

    def _shared_state(self) -> SharedState:
        try:
            return SharedState(Subject(self._factory, SeedBranch.of(SeedTree(0), 1), self._settings.stateless))
        except (TypeError, ValueError) as error:
            raise UnusableError(str(error)) from error

    def _answer(self, subject: Subject, question: Question) -> Row:
        number = len(question.experiments[0].still.order)
        for experiment in question.experiments:
            still, changed = experiment.run(subject, self._still.get(experiment.still))
            if not experiment.is_elsewhere:
                self._still[experiment.still] = still
            different = differing(still, changed)
            raised = {
                key: code for each in (still, changed) for key, code in each.prints.items() if type(code) is Raised
            }
            if not question.alone:  # what raises has no bytes; that it does only without repairs is repaired
                different = [key for key in different if key not in raised]
            if different:
                self._shown.append((question, experiment, different))
                return Row.of(question.what, number, different, REPAIRED if self._is_repaired(question) else DIFFERENT)
            if raised and not question.alone:
                where = "in another interpreter" if experiment.is_elsewhere else "under these circumstances"
                raise RuntimeError(f"{where}, the pipeline raises {next(iter(raised.values()))}")
        return Row.of(question.what, number, [])

    def _is_repaired(self, question: Question) -> bool:
        """Whether the pipeline differs alone, and not with detaug's repairs."""
        with_repairs = (shown for shown, _, _ in self._shown if shown.factor == question.factor and not shown.alone)
        return question.alone and not any(with_repairs)

    def _causes(self, subject: Subject, keys: list[BatchKey]) -> tuple[Cause, ...]:
        shown = self._shown
        if any(question.factor == "nothing" for question, _, _ in shown):
            # Then every other experiment differs as well, and shows nothing.
            shown = [each for each in shown if each[0].factor == "nothing"]
        elif any(question.factor == "threads" for question, _, _ in shown):
            # Then another may have differed at random.
            shown = [each for each in shown if each[0].factor == "threads"]
        elif any(question.factor == "history" and not question.alone for question, _, _ in shown):
            # Then what differs alone does so for the same reason, which history tells better.
            shown = [each for each in shown if each[0].factor != "alone"]
        found: dict[Any, Cause] = {}
        seconds = self._settings.search_seconds
        ends = None if seconds is None else time.monotonic() + seconds
        for number, (question, experiment, different) in enumerate(shown):
            self._tell(f"looking for the cause: {question.what}")
            timed = _with_its_share(subject, ends, len(shown) - number)
            causes, stopped = causes_of(timed, experiment, different, self._is_repaired(question))
            for cause in causes:
                found.setdefault(cause.site or cause.what, cause)
            self._note_the_stop(question.what, stopped)
        if any(question.factor == "randomness" for question, _, _ in shown) and any(
            cause.site for cause in found.values()
        ):
            # Randomness that no seed governs depends on what was drawn before: history without a line is that same fault.
            found = {key: cause for key, cause in found.items() if cause.site is not None}
        if not found and any(row.verdict == DIFFERENT for row in self._rows):
            self._tell("looking for the cause: in another process")
            self._search_elsewhere(_with_its_share(subject, ends, 1), keys, found)
        return tuple(sorted(found.values(), key=lambda cause: cause.repaired))

    def _search_elsewhere(self, subject: Subject, keys: list[BatchKey], found: dict[Any, Cause]) -> None:
        still = Trial(tuple(dict.fromkeys(keys)))
        place = Experiment("place", still, still)
        rows = [row.what for row in self._rows if row.verdict == DIFFERENT]
        try:
            different = differing(*place.run(subject))
        except (SearchStopped, OSError, UnusableError) as stop:
            different = []
            self._note_the_stop("in another process", str(stop))
        if different:
            causes, stopped = causes_of(subject, place, different)
            found.update({cause.site or cause.what: cause for cause in causes})
            self._note_the_stop("in another process", stopped)
        else:
            what = f"the pipeline depends on something that only shows with: {'; '.join(rows)}"
            found[what] = Cause(what, None)

    def _note_the_stop(self, where: str, why: str) -> None:
        if why:
            self._notes.append(f"the search for the line ({where}) was stopped {why}")

    def _take_notes(self, reference: Reference) -> None:
        if len(set(reference.prints)) == 1 and len(reference.prints) > 1:
            self._notes.append(f"all {len(reference.prints)} batches are the same")
        for trial, outcome in self._still.items():
            if trial.repairs:
                self._notes += [
                    f"{site}: seeds a generator with {seed} in every batch, so that every batch draws the same numbers from "
                    "it. If you do not want that, make the generator before the first batch, so that detaug seeds it for each "
                    "one, or use detaug.current().generator"
                    for site, seed in outcome.fixed_seeds.items()
                ]
        if len(reference.prints) < self._settings.batches:
            self._notes.append(f"the loader gave {len(reference.prints)} of {self._settings.batches} batches")


def _measured(planned: Planned[Row]) -> Planned[Row]:
    """A row that fails alone: what could not be measured says nothing of the pipeline."""

    def run() -> Row:
        try:
            return planned.run()
        except CannotTravel as error:
            return Row(planned.what, NOT_RUN, detail=str(error))
        except Exception as error:
            return Row(planned.what, FAILED, detail=_told(error))

    return replace(planned, run=run)


def _told(error: Exception) -> str:
    return str(error) if isinstance(error, UnusableError) else describe(error).summary.splitlines()[0]


def _with_its_share(subject: Subject, ends: float | None, searches: int) -> Subject:
    """The subject with an equal share of the time that is left for so many searches."""
    if ends is None:
        return subject
    now = time.monotonic()
    return replace(subject, until=now + max(0.0, ends - now) / searches)
