"""What `detaug.engine.schedule.Schedule` means, as plainly as possible: everything is computed anew
at every call.
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
    """The same verbs, each of which walks the whole window."""

    def __init__(
        self,
        plan: StepPlan,
        window: int,
        num_workers: int,
        stateless: bool,
        limit: int | None = None,
    ) -> None:
        self.plan, self.window, self.stateless, self.limit = plan, window, stateless, limit
        self.position = Position(0, plan.rank, 0)
        self.outcomes: dict[BatchKey, Outcome] = {}
        self.in_flight: set[BatchKey] = set()
        self._ended: dict[int, dict[int, int]] = {}
        self._stride = gcd(plan.num_streams, plan.world_size)
        self._num_workers = max(1, num_workers)

    def _key(self, position: Position) -> BatchKey:
        return BatchKey(position.epoch, self.plan.step_at(position.step))

    def upcoming(self) -> Iterator[BatchKey]:
        """In the order of the places."""
        position, own, epochs = self.position, 0, 0
        while own < self.window and epochs <= self.window:
            end = self._end_at(position)
            if end is not None:
                position, epochs = end.next_position, epochs + 1
                continue
            key = self._key(position)
            if self._gap(key):
                position = position._replace(step=position.step + self.plan.world_size)
                continue
            yield key
            own += 1
            position = self.after(position)

    def window_tasks(self) -> list[BatchKey]:
        self._ended = {
            epoch: ended for epoch, ended in self._ended.items() if epoch >= self.position.epoch
        }
        return list(self.upcoming())

    def next_for(self, worker: int) -> BatchKey | None:
        for key in self.upcoming():
            is_open = key not in self.in_flight and key not in self.outcomes
            if is_open and (self.stateless or self._owner(self.plan.stream_of(key.step)) == worker):
                return key
        return None

    def _owner(self, stream: int) -> int:
        """The how-manieth stream of its rank it is decides."""
        return stream // self._stride % self._num_workers

    def start(self, key: BatchKey) -> None:
        self.in_flight.add(key)

    def requeue(self, key: BatchKey) -> None:
        self.in_flight.discard(key)

    def finish(self, key: BatchKey, outcome: Outcome) -> None:
        self.in_flight.discard(key)
        self.outcomes[key] = outcome
        self.prune()

    def end_stream(self, key: BatchKey) -> None:
        """Of a single rank."""
        self.in_flight.discard(key)
        ended = self._ended.setdefault(key.epoch, {})
        stream, turn = self.plan.stream_of(key.step), self.plan.turn_of(key.step)
        ended[stream] = min(turn, ended.get(stream, turn))

    def prune(self) -> None:
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
        over = self.limit is not None and position.num_taken >= self.plan.share_of(
            max(0, self.limit - position.num_before_resize)
        )
        # `StepPlan` has tests of its own.
        end = self.plan.end(self.plan.phase_of(position.step))
        over = over or (end is not None and position.step >= end)
        ended = self._ended.get(position.epoch)
        if not over and len(ended or {}) == self.plan.num_streams:
            lasts = [self.plan.step_of(stream, turn - 1) for stream, turn in ended.items()]
            over = position.step > max(lasts)
        return (
            EpochEnd(Position(position.epoch + 1, self.plan.rank, 0, 0, position.num_skipped))
            if over
            else None
        )

    def _gap(self, key: BatchKey) -> bool:
        turn = self._ended.get(key.epoch, {}).get(self.plan.stream_of(key.step))
        return turn is not None and self.plan.turn_of(key.step) >= turn
