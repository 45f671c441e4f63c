"""What `detaug.engine.order.schedule.Schedule` means, as plainly as possible: everything is computed anew at every call."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from detaug.engine.order.outcomes import (
    Delivered,
    EpochEnd,
    Failed,
    Outcome,
    Position,
    Skipped,
    Task,
)
from detaug.pipeline.plan import BatchKey, Plan


class ReferenceSchedule:
    """The same verbs, each of which walks the whole window."""

    def __init__(
        self,
        plan: Plan,
        window: int,
        num_workers: int,
        stateless: bool,
        limit: int | None = None,
        probing: bool = False,
    ) -> None:
        self.plan, self.window, self.stateless, self.limit = plan, window, stateless, limit
        self.probing = probing and plan.world_size > 1
        self.position = Position(0, plan.rank, 0)
        self.outcomes: dict[BatchKey, Outcome] = {}
        self.in_flight: set[BatchKey] = set()
        self._ended: dict[int, dict[int, int]] = {}
        self._stride = 1 if self.probing else gcd(plan.num_streams, plan.world_size)
        self._num_workers = max(1, num_workers)

    def _round(self, position: Position) -> range:
        """The places of all ranks at the time of this rank's."""
        first = position.step - self.plan.rank
        return range(first, first + self.plan.world_size)

    def _key(self, position: Position) -> BatchKey:
        wraps = self.plan.wraps_at is not None
        return BatchKey(
            position.epoch, self.plan.made_at(position.step) if wraps else position.step
        )

    def _probed(self, position: Position) -> list[BatchKey]:
        return [
            BatchKey(position.epoch, step)
            for step in self._round(position)
            if step != position.step
        ]

    def upcoming(self) -> Iterator[tuple[BatchKey, Task]]:
        """(place, task)"""
        position, own, epochs = self.position, 0, 0
        while own < self.window and epochs <= self.window:
            end = self._end_at(position)
            if end is not None:
                position, epochs = end.then, epochs + 1
                continue
            key = self._key(position)
            if self._gap(key):
                position = position._replace(step=position.step + self.plan.world_size)
                continue
            if self.probing:
                for probed in self._probed(position):
                    yield probed, Task(probed, probe=True)
            yield BatchKey(position.epoch, position.step), Task(key, probe=False)
            own += 1
            position = self.after(position)

    def wanted(self) -> dict[BatchKey, Task]:
        self._ended = {
            epoch: ended for epoch, ended in self._ended.items() if epoch >= self.position.epoch
        }
        return {task.key: task for _, task in self.upcoming()}

    def next_for(self, worker: int) -> Task | None:
        free = [
            (place, task)
            for place, task in self.upcoming()
            if task.key not in self.in_flight
            and task.key not in self.outcomes
            and (self.stateless or self._owner(self.plan.stream_of(task.key.step)) == worker)
        ]
        return min(free, default=(None, None))[1]

    def _owner(self, stream: int) -> int:
        """The how-manieth stream of its rank it is decides."""
        return stream // self._stride % self._num_workers

    def start(self, key: BatchKey) -> None:
        self.in_flight.add(key)

    def lose(self, key: BatchKey) -> None:
        self.in_flight.discard(key)

    def finish(self, key: BatchKey, outcome: Outcome) -> None:
        self.in_flight.discard(key)
        self.outcomes[key] = outcome
        self.prune()

    def end_stream(self, key: BatchKey) -> None:
        self.in_flight.discard(key)
        ended = self._ended.setdefault(key.epoch, {})
        stream, turn = self.plan.stream_of(key.step), self.plan.turn_of(key.step)
        ended[stream] = min(turn, ended.get(stream, turn))

    def prune(self) -> None:
        wanted = self.wanted()
        self.outcomes = {key: outcome for key, outcome in self.outcomes.items() if key in wanted}

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
            if self.probing and not all(
                each in self.outcomes for each in [key, *self._probed(position)]
            ):
                return position, None
            outcome = self.outcomes.get(key)
            if not isinstance(outcome, Skipped):
                return position, outcome
            position = self.after(position)._replace(skipped=position.skipped + 1)

    def after(self, position: Position) -> Position:
        return position._replace(
            step=position.step + self.plan.world_size, taken=position.taken + 1, skipped=0
        )

    def hand_out(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        if isinstance(outcome, Delivered):
            self.outcomes.pop(self._key(position))
            self.position = self.after(position)
        elif isinstance(outcome, EpochEnd):
            self.position = outcome.then
        else:
            self.position = position

    def _end_at(self, position: Position) -> EpochEnd | None:
        over = self.limit is not None and position.taken >= self.plan.share_of(
            max(0, self.limit - position.before)
        )
        end = self.plan.end(self.plan.phase_of(position.step))  # `Plan` has tests of its own
        over = over or (end is not None and position.step >= end)
        ended = self._ended.get(position.epoch)
        if not over and ended:
            if self.probing:
                first_gap = min(self.plan.step_of(stream, turn) for stream, turn in ended.items())
                over = max(self._round(position)) >= first_gap
            else:
                own = {
                    step % self.plan.num_streams
                    for step in range(
                        position.step,
                        position.step + 1000 * self.plan.world_size,
                        self.plan.world_size,
                    )
                }
                if all(stream in ended for stream in own):
                    over = position.step > max(
                        self.plan.step_of(stream, ended[stream] - 1) for stream in own
                    )
        return (
            EpochEnd(Position(position.epoch + 1, self.plan.rank, 0, 0, position.skipped))
            if over
            else None
        )

    def _gap(self, key: BatchKey) -> bool:
        turn = self._ended.get(key.epoch, {}).get(self.plan.stream_of(key.step))
        return turn is not None and self.plan.turn_of(key.step) >= turn
