"""Which batch is to be made next, by whom, and which is due: the engine's pure part, without processes or clocks.

Invariants:
- `position` is the first step not yet handed to the user; it moves by one assignment, so an interrupt between two
  bytecodes leaves either the old or the new one.
- Only the `window` steps that come next may be in flight or waiting. Everything else that arrives is dropped: any batch
  can be made again.
- A step is a *gap* once its stream is known to have ended at or before its turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Any, NamedTuple

from detaug.plan import BatchKey, Plan


class Position(NamedTuple):
    """Where the reader stands.

    Attributes:
        epoch, step: what is due next.
        taken: steps of this rank that were handed out (or skipped) in this epoch.
    """

    epoch: int
    step: int
    taken: int


class Task(NamedTuple):
    """A batch to be made. A probe only asks whether it exists."""

    key: BatchKey
    probe: bool


@dataclass(frozen=True)
class Delivered:
    """A finished batch."""

    batch: Any


@dataclass(frozen=True)
class Failed:
    """Its loader or transform raised, or it killed its workers."""

    error: BaseException


@dataclass(frozen=True)
class Skipped:
    """It failed and was left out, as on_error="skip" wants."""


@dataclass(frozen=True)
class Exists:
    """A probe found that there is such a batch."""


@dataclass(frozen=True)
class EpochEnd:
    """Nothing of this epoch is left; the next one begins at `then`."""

    then: Position


Outcome = Delivered | Failed | Skipped | Exists


class Schedule:
    """The order of batches and what is known of them.

    Args:
        plan: steps, streams, ranks.
        window: how many of this rank's steps may be in flight or waiting.
        num_workers: processes; a stream-bound stream belongs to one of them.
        stateless: whether any worker may make any batch.
        limit: this rank's batches per epoch, where the user set one.
        probing: ranks must agree on where a finite stream-bound source ends, so the other ranks' steps are looked at
            too, and the epoch ends with the last round of steps that is complete.
    """

    def __init__(
        self,
        plan: Plan,
        window: int,
        num_workers: int,
        stateless: bool,
        limit: int | None = None,
        probing: bool = False,
    ) -> None:
        self.plan = plan
        self.window = window
        self.stateless = stateless
        self.limit = limit
        self.probing = probing and plan.world_size > 1
        self.position = self.start_of(0)
        self.outcomes: dict[BatchKey, Outcome] = {}
        self.in_flight: set[BatchKey] = set()
        self._ended: dict[int, dict[int, int]] = {}
        stride = 1 if self.probing else gcd(plan.num_streams, plan.world_size)
        self._streams = list(range(0 if self.probing else plan.rank % stride, plan.num_streams, stride))
        self._owner = {stream: i % max(1, num_workers) for i, stream in enumerate(self._streams)}

    @property
    def busy_workers(self) -> int:
        """How many workers can be kept busy."""
        return len(set(self._owner.values()))

    def start_of(self, epoch: int) -> Position:
        """This rank's first position in an epoch."""
        return Position(epoch, self.plan.first_step(), 0)

    def position_at(self, epoch: int, step: int) -> Position:
        """The position at a step of this rank, had no step before it been a gap."""
        return Position(epoch, step, (step - self.plan.rank) // self.plan.world_size)

    def upcoming(self) -> Iterator[Task]:
        """The tasks of the next `window` steps, in order; epochs follow each other once their end is known."""
        position, own, epochs = self.position, 0, 0
        while own < self.window and epochs <= self.window:
            end = self._end_at(position)
            if end is not None:
                position, epochs = end.then, epochs + 1
                continue
            key = BatchKey(position.epoch, position.step)
            if self._gap(key):
                position = position._replace(step=self.plan.next_step(key.step))
                continue
            if self.probing:
                for step in self.plan.round_of(key.step):
                    other = BatchKey(key.epoch, step)
                    if other != key:
                        yield Task(other, probe=True)
            yield Task(key, probe=False)
            own += 1
            position = Position(key.epoch, self.plan.next_step(key.step), position.taken + 1)

    def next_for(self, worker: int) -> Task | None:
        """The lowest task not yet started that this worker may take; None: there is nothing to do for it now."""
        for task in self.upcoming():
            if task.key in self.in_flight or task.key in self.outcomes:
                continue
            if self.stateless or self._owner[self.plan.stream_of(task.key.step)] == worker:
                return task
        return None

    def start(self, key: BatchKey) -> None:
        """A worker was given this task."""
        self.in_flight.add(key)

    def lose(self, key: BatchKey) -> None:
        """Its worker is gone; it is to be made again."""
        self.in_flight.discard(key)

    def finish(self, key: BatchKey, outcome: Outcome) -> None:
        """A task is done. What is no longer wanted is dropped."""
        self.in_flight.discard(key)
        self.outcomes[key] = outcome
        self.prune()

    def end_stream(self, key: BatchKey) -> None:
        """There is no such batch: its stream has ended."""
        self.in_flight.discard(key)
        ended = self._ended.setdefault(key.epoch, {})
        stream, turn = self.plan.stream_of(key.step), self.plan.turn_of(key.step)
        ended[stream] = min(turn, ended.get(stream, turn))

    def prune(self) -> None:
        """Drop outcomes outside the window and what is known of streams in epochs gone by."""
        wanted = {task.key for task in self.upcoming()}
        for key in [key for key in self.outcomes if key not in wanted]:
            del self.outcomes[key]
        for epoch in [epoch for epoch in self._ended if epoch < self.position.epoch]:
            del self._ended[epoch]

    def forget_all(self) -> None:
        """Drop every outcome; what is in flight will be dropped as it arrives."""
        self.outcomes.clear()

    def due(self) -> tuple[Position, Outcome | EpochEnd | None]:
        """The next step that is no gap, and its outcome; None while it is not known. Changes nothing."""
        position = self.position
        while True:
            end = self._end_at(position)
            if end is not None:
                return position, end
            key = BatchKey(position.epoch, position.step)
            if self._gap(key):
                position = position._replace(step=self.plan.next_step(key.step))
                continue
            if not self._round_known(key):
                return position, None
            outcome = self.outcomes.get(key)
            if isinstance(outcome, Skipped):
                position = self.after(position)
                continue
            return position, outcome

    def after(self, position: Position) -> Position:
        """The position behind a step that was handed out."""
        return Position(position.epoch, self.plan.next_step(position.step), position.taken + 1)

    def _end_at(self, position: Position) -> EpochEnd | None:
        over = self.limit is not None and position.taken >= self.limit
        over = over or (self.plan.end is not None and position.step >= self.plan.end)
        ended = self._ended.get(position.epoch)
        if not over and ended:
            if self.probing:
                # The first round that is not complete is where all ranks stop.
                first_gap = min(self.plan.step_of(stream, turn) for stream, turn in ended.items())
                over = position.step >= self.plan.round_of(first_gap).start
            elif all(stream in ended for stream in self._streams):
                over = position.step > max(self.plan.step_of(stream, turn - 1) for stream, turn in ended.items())
        return EpochEnd(self.start_of(position.epoch + 1)) if over else None

    def _gap(self, key: BatchKey) -> bool:
        turn = self._ended.get(key.epoch, {}).get(self.plan.stream_of(key.step))
        return turn is not None and self.plan.turn_of(key.step) >= turn

    def _round_known(self, key: BatchKey) -> bool:
        if not self.probing:
            return True
        return all(BatchKey(key.epoch, step) in self.outcomes for step in self.plan.round_of(key.step))
