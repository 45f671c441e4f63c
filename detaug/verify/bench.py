"""Making a pipeline's batches in this process under given conditions, while something is watched: one trial."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from threadpoolctl import threadpool_limits

from detaug.engine.warming import warm_up
from detaug.global_rng import preserved_global_rngs
from detaug.hashing import fingerprint
from detaug.interception import Site
from detaug.pipeline import Pipeline, Producer, StreamEnded
from detaug.plan import BatchKey
from detaug.sources import resolve_source
from detaug.verify.carried import Snapshot
from detaug.verify.conditions import Conditions
from detaug.verify.lines import Event, LineRecorder
from detaug.verify.outputs import Output, OutputRecorder
from detaug.verify.surroundings import under

Factory = Callable[[], Any]


class Hooks(Protocol):
    """What looks at, or changes, the pipeline's objects in the middle of a trial."""

    def begin(self, producer: Producer, key: BatchKey) -> None:
        """Called before the first batch, `key`, is made."""

    def between(self, producer: Producer) -> None:
        """Called before every batch but the first."""


class UnusableError(ValueError):
    """What was handed in cannot be verified at all; the message says why."""


@dataclass(frozen=True)
class Subject:
    """The pipeline that is looked at.

    Attributes:
        factory: gives (loader, transform), freshly made, at every call.
        entropy: the four words of the seed branch.
        num_streams: logical workers.
        stateless: what the loader is declared to be.
    """

    factory: Factory
    entropy: tuple[int, ...]
    num_streams: int
    stateless: bool | None = None


@dataclass(frozen=True)
class Trial:
    """Batches to be made, and how.

    Attributes:
        order: which, in this order.
        conditions: what surrounds the pipeline.
        repairs: as `detaug.pipeline.Producer` has it.
        watch: "" nothing, "outputs" of the transforms, "lines" that run, or "both"; of the last batch in `order`.
        names: with "lines", of these variables only, which is quicker; empty: all.
        stateless: overrides the subject's.
    """

    order: tuple[BatchKey, ...]
    conditions: Conditions = field(default_factory=Conditions)
    repairs: str = "all"
    watch: str = ""
    names: frozenset[str] = frozenset()
    stateless: bool | None = None


@dataclass
class Outcome:
    """What a trial gave.

    Attributes:
        prints: a fingerprint for each batch; where it could not be made, what was raised.
        sites: which lines asked for chance, the clock, ... (see `detaug.verify.conditions.Calls`).
        outputs, lines: what was watched, of the last batch.
        earlier_lines: of the pipeline's making and of the batches before.
    """

    prints: dict[BatchKey, str]
    sites: dict[str, dict[Site, str]]
    outputs: list[Output] = field(default_factory=list)
    lines: list[Event] = field(default_factory=list)
    earlier_lines: list[Event] = field(default_factory=list)


def call_factory(factory: Factory) -> tuple[Any, Any]:
    """(loader, transform).

    Raises:
        UnusableError: it gives something else.
    """
    made = factory()
    if not isinstance(made, tuple) or len(made) != 2:
        raise UnusableError(
            f"the factory must return (loader, transform), where the transform may be None; it returned "
            f"{type(made).__name__}" + (f" of {len(made)}" if isinstance(made, tuple) else "")
        )
    return made


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
    """Run one trial in this process, whose own random state and thread counts are as before afterwards."""
    earlier, watched = LineRecorder(trial.names), LineRecorder(trial.names)
    outputs: list[Output] = []
    prints: dict[BatchKey, str] = {}
    following = trial.watch in ("lines", "both")
    with preserved_global_rngs(), _one_thread(), under(trial.conditions) as calls:
        with earlier.following() if following else ExitStack():
            producer = _producer(subject, trial)
        shared = Snapshot(producer, shared=True)
        for number, key in enumerate(trial.order):
            last = number == len(trial.order) - 1
            calls.start_over()
            if hooks is not None and number == 0:
                hooks.begin(producer, key)
            elif hooks is not None:
                hooks.between(producer)
            with ExitStack() as stack:
                if following:
                    stack.enter_context((watched if last else earlier).following())
                if last and trial.watch in ("outputs", "both"):
                    recorder = OutputRecorder(producer._source, producer._transform)
                    outputs = recorder.outputs
                    stack.enter_context(recorder.recording())
                prints[key] = _print_of(producer, key)
        # What classes and modules keep would reach the next trial in this process.
        shared.put_back(producer)
    return Outcome(prints, calls.sites, outputs, watched.events, earlier.events)


def _producer(subject: Subject, trial: Trial) -> Producer:
    loader, transform = call_factory(subject.factory)
    stateless = subject.stateless if trial.stateless is None else trial.stateless
    pipeline = Pipeline(resolve_source(loader, stateless), transform, must_copy=False)
    warm_up(transform, pipeline.source.loader)
    return Producer(pipeline.copy, subject.entropy, subject.num_streams, lambda _: None, repairs=trial.repairs)


def _print_of(producer: Producer, key: BatchKey) -> str:
    try:
        return fingerprint(producer.make(key.epoch, key.step))
    except StreamEnded:
        return "the stream ended before it"
    except Exception as error:  # an outcome like any other: it is compared with the other runs'
        return f"{type(error).__name__}: {error}"


@contextmanager
def _one_thread() -> Iterator[None]:
    """As in a worker: sums depend on the number of threads."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(count)
