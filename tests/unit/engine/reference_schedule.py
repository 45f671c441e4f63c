"""A plain reference for `detaug.engine.schedule.Schedule`, which remembers almost nothing.

Every call computes its result from the position and the outcomes.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from detaug.engine.outcomes import (
    Delivered,
    EpochEnd,
    Failed,
    Outcome,
    Position,
    Skipped,
)
from detaug.pipeline.plan import BatchKey, StepPlan


class ReferenceSchedule:
    """A schedule with the same methods, each of which walks through the whole window."""

    def __init__(
        self,
        plan: StepPlan,
        window: int,
        num_workers: int,
        stateless: bool,
        limit: int | None = None,
    ) -> None:
        self.plan = plan
        self.window = window
        self.stateless = stateless
        self.limit = limit
        self.position = Position(0, plan.rank, 0)
        self.outcomes: dict[BatchKey, Outcome] = {}
        self.in_flight: set[BatchKey] = set()
        # epoch -> {stream: number of its batches}, for streams that have ended.
        self._ended: dict[int, dict[int, int]] = {}
        self._stride = gcd(plan.num_streams, plan.world_size)
        self._num_workers = max(1, num_workers)

    def _key(self, position: Position) -> BatchKey:
        return BatchKey(position.epoch, self.plan.step_at(position.step))

    def upcoming(self) -> Iterator[BatchKey]:
        """Yield the batches of the window in the rank's order."""
        position = self.position
        num_tasks = 0
        num_ends = 0
        # Empty epochs have no tasks, so the number of ends is limited as well.
        while num_tasks < self.window and num_ends <= self.window:
            end = self._end_at(position)
            if end is not None:
                position = end.next_position
                num_ends += 1
                continue
            key = self._key(position)
            if self._gap(key):
                position = position._replace(step=position.step + self.plan.world_size)
                continue
            yield key
            num_tasks += 1
            position = self.after(position)

    def window_tasks(self) -> list[BatchKey]:
        """Return the batches of the window, and forget the ends of streams in past epochs."""
        for epoch in list(self._ended):
            if epoch < self.position.epoch:
                del self._ended[epoch]
        return list(self.upcoming())

    def next_for(self, worker: int) -> BatchKey | None:
        """Return the first open batch that a worker may make, or None."""
        for key in self.upcoming():
            if key in self.in_flight or key in self.outcomes:
                continue
            if self.stateless or self._owner(self.plan.stream_of(key.step)) == worker:
                return key
        return None

    def _owner(self, stream: int) -> int:
        """Return the worker that makes a stream, by the stream's index within its rank."""
        index_in_rank = stream // self._stride
        return index_in_rank % self._num_workers

    def start(self, key: BatchKey) -> None:
        self.in_flight.add(key)

    def requeue(self, key: BatchKey) -> None:
        self.in_flight.discard(key)

    def finish(self, key: BatchKey, outcome: Outcome) -> None:
        self.in_flight.discard(key)
        self.outcomes[key] = outcome
        self.prune()

    def end_stream(self, key: BatchKey) -> None:
        """Note that a stream has ended before a batch; for a single rank only."""
        self.in_flight.discard(key)
        ended = self._ended.setdefault(key.epoch, {})
        stream = self.plan.stream_of(key.step)
        turn = self.plan.turn_of(key.step)
        ended[stream] = min(turn, ended.get(stream, turn))

    def prune(self) -> None:
        """Forget outcomes outside of the window."""
        tasks = self.window_tasks()
        self.outcomes = {key: outcome for key, outcome in self.outcomes.items() if key in tasks}

    def forget_failures(self) -> None:
        self.outcomes = {
            key: outcome
            for key, outcome in self.outcomes.items()
            if not isinstance(outcome, Failed)
        }

    def due(self) -> tuple[Position, Outcome | EpochEnd | None]:
        position = self.position
        while True:
            end = self._end_at(position)
            if end is not None:
                return position, end
            key = self._key(position)
            if self._gap(key):
                position = position._replace(step=position.step + self.plan.world_size)
                continue
            outcome = self.outcomes.get(key)
            if not isinstance(outcome, Skipped):
                return position, outcome
            position = self.after(position)._replace(num_skipped=position.num_skipped + 1)

    def after(self, position: Position) -> Position:
        return position._replace(
            step=position.step + self.plan.world_size,
            num_taken=position.num_taken + 1,
            num_skipped=0,
        )

    def hand_out(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        if isinstance(outcome, Delivered):
            self.outcomes.pop(self._key(position))
            self.position = self.after(position)
        elif isinstance(outcome, EpochEnd):
            self.position = outcome.next_position
        else:
            self.position = position

    def _end_at(self, position: Position) -> EpochEnd | None:
        """Return the end of the epoch if the position is at it, or None."""
        if not self._is_over(position):
            return None
        next_epoch = position.epoch + 1
        return EpochEnd(Position(next_epoch, self.plan.rank, 0, 0, position.num_skipped))

    def _is_over(self, position: Position) -> bool:
        """Return whether a position is after the epoch's last batch of this rank."""
        if self.limit is not None:
            num_left = max(0, self.limit - position.num_before_resize)
            if position.num_taken >= self.plan.share_of(num_left):
                return True
        # Here the reference relies on `StepPlan`, which has tests of its own.
        end = self.plan.end(self.plan.phase_of(position.step))
        if end is not None and position.step >= end:
            return True
        ended = self._ended.get(position.epoch, {})
        if len(ended) < self.plan.num_streams:
            return False
        last_steps = [self.plan.step_of(stream, turn - 1) for stream, turn in ended.items()]
        return position.step > max(last_steps)

    def _gap(self, key: BatchKey) -> bool:
        """Return whether the stream of a batch has ended before it."""
        turn = self._ended.get(key.epoch, {}).get(self.plan.stream_of(key.step))
        return turn is not None and self.plan.turn_of(key.step) >= turn
