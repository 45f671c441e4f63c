"""Making a pipeline's batches in this process under given conditions, while something is watched: one trial."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Protocol

from detaug.engine.warming import warm_up
from detaug.fingerprints import fingerprint
from detaug.pipeline.plan import BatchKey
from detaug.pipeline.producer import Pipeline, Producer, StreamEnded
from detaug.processes.threads import one_thread
from detaug.seeding.branch import SeedBranch
from detaug.seeding.global_generators import preserved_global_rngs
from detaug.verification.handed_in import Factory, call_factory
from detaug.verification.trials.carried import Snapshot
from detaug.verification.trials.conditions import Conditions
from detaug.verification.trials.lines import Event, LineRecorder
from detaug.verification.trials.outputs import Output, OutputRecorder
from detaug.verification.trials.surroundings import under
from detaug.watching.interception import Site


class SearchStopped(BaseException):
    """The time for the search is over. Not an Exception: it may be raised in the middle of a pipeline that catches those."""

    def __init__(self) -> None:
        super().__init__("when its share of the time was over (search_seconds=..., --seconds-for-cause)")


class Raised(str):
    """In the place of a batch's fingerprint: what was raised instead."""


class Hooks(Protocol):
    """What looks at, or changes, the pipeline's objects in the middle of a trial."""

    def begin(self, producer: Producer, key: BatchKey) -> None:
        """Called before the first batch, `key`, is made."""

    def between(self, producer: Producer, key: BatchKey) -> None:
        """Called before every other batch, `key`."""


@dataclass(frozen=True)
class Subject:
    """The pipeline on trial.

    Attributes:
        factory: gives the pipeline, freshly made, at every call.
        branch: of the seed tree.
        stateless: what the loader is declared to be.
        loader_only: without the transform.
        until: when trials are to stop (`time.monotonic`); None: never.
        batches_per_epoch: where epochs are cut.
    """

    factory: Factory
    branch: SeedBranch
    stateless: bool | None = None
    loader_only: bool = False
    until: float | None = None
    batches_per_epoch: int | None = None

    def check_time(self) -> None:
        """Raises:
        SearchStopped: the time is over.
        """
        if self.until is not None and time.monotonic() > self.until:
            raise SearchStopped


@dataclass(frozen=True)
class Trial:
    """Batches to be made, and how.

    Attributes:
        order: which, in this order.
        conditions: what surrounds the pipeline.
        repairs: as `detaug.pipeline.producer.Producer` has it.
        watch: "" nothing, "outputs" of the transforms, "lines" that run, or "both"; of the last batch in `order`.
        names: with "lines", of these variables only, which is quicker; empty: all.
    """

    order: tuple[BatchKey, ...]
    conditions: Conditions = field(default_factory=Conditions)
    repairs: bool = True
    watch: str = ""
    names: frozenset[str] = frozenset()


@dataclass
class Outcome:
    """What a trial gave.

    Attributes:
        prints: a fingerprint for each batch; where it could not be made, what was raised.
        sites: which lines asked for random numbers, the clock, ... (see `detaug.verification.trials.conditions.Calls`).
        outputs, lines: what was watched, of the last batch.
        earlier_lines: of the pipeline's making and of the batches before.
        fixed_seeds: lines that seed a generator with the same seed in every batch, and the seed.
    """

    prints: dict[BatchKey, str]
    sites: dict[str, dict[Site, str]]
    outputs: list[Output] = field(default_factory=list)
    lines: list[Event] = field(default_factory=list)
    earlier_lines: list[Event] = field(default_factory=list)
    fixed_seeds: dict[Site, str] = field(default_factory=dict)


class SharedState:
    """What classes, modules and functions of a pipeline keep in this process, whichever copy of it runs.

    Args:
        subject: the pipeline.
    """

    def __init__(self, subject: Subject) -> None:
        self._producer = _producer(subject, Trial(()))
        self._snapshot = Snapshot(self._producer, shared=True)

    def put_back(self) -> None:
        """As it was when this object was made."""
        self._snapshot.put_back(self._producer)


def perform(subject: Subject, trial: Trial, hooks: Hooks | None = None) -> Outcome:
    """Run one trial in this process, whose own random state and thread counts are as before afterwards.

    Raises:
        SearchStopped: the time for it is over.
    """
    earlier, watched = (LineRecorder(trial.names, subject.check_time) for _ in range(2))
    outputs: list[Output] = []
    prints: dict[BatchKey, str] = {}
    following = trial.watch in ("lines", "both")
    with preserved_global_rngs(), one_thread(), under(trial.conditions) as calls, ExitStack() as cleanup:
        with earlier.following() if following else ExitStack():
            producer = _producer(subject, trial)
        # Taken after the pipeline was made, which may set up classes, and before its first batch.
        shared = Snapshot(producer, shared=True)
        # What classes and modules keep would reach the next trial in this process.
        cleanup.callback(shared.put_back, producer)
        for number, key in enumerate(trial.order):
            last = number == len(trial.order) - 1
            subject.check_time()
            calls.start_over()
            if hooks is not None and number == 0:
                hooks.begin(producer, key)
            elif hooks is not None:
                hooks.between(producer, key)
            with ExitStack() as stack:
                if following:
                    stack.enter_context((watched if last else earlier).following())
                if last and trial.watch in ("outputs", "both"):
                    recorder = OutputRecorder(producer.objects)
                    outputs = recorder.outputs
                    stack.enter_context(recorder.recording())
                prints[key] = _print_of(producer, key)
    return Outcome(prints, calls.sites, outputs, watched.events, earlier.events, calls.always_the_same())


def _producer(subject: Subject, trial: Trial) -> Producer:
    made = call_factory(subject.factory, subject.stateless, subject.batches_per_epoch)
    transform = None if subject.loader_only else made.transform
    pipeline = Pipeline(made.source, transform, must_travel=False, keep=made.keep)
    warm_up(transform, made.source.loader)
    return Producer(pipeline.pristine, subject.branch, lambda _: None, repairs=trial.repairs)


def _print_of(producer: Producer, key: BatchKey) -> str:
    try:
        return fingerprint(producer.make(key.epoch, key.step))
    except StreamEnded:
        return "the stream ended before it"
    except Exception as error:  # an outcome like any other: it is compared with the other runs'
        return Raised(f"{type(error).__name__}: {error}")
