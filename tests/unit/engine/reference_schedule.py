"""What `detaug.engine.schedule.Schedule` means, as plainly as possible: everything is computed anew at every call."""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

from detaug.engine.schedule import Delivered, EpochEnd, Failed, Outcome, Position, Skipped, Task
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
        self.position = Position(0, plan.first_step(), 0)
        self.outcomes: dict[BatchKey, Outcome] = {}
        self.in_flight: set[BatchKey] = set()
        self._ended: dict[int, dict[int, int]] = {}
        stride = 1 if self.probing else gcd(plan.num_streams, plan.world_size)
        self._streams = list(range(0 if self.probing else plan.rank % stride, plan.num_streams, stride))
        self._owner = {stream: i % max(1, num_workers) for i, stream in enumerate(self._streams)}

    def upcoming(self) -> Iterator[Task]:
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
                    if step != key.step:
                        yield Task(BatchKey(key.epoch, step), probe=True)
            yield Task(key, probe=False)
            own += 1
            position = self.after(position)

    def wanted(self) -> dict[BatchKey, Task]:
        self._ended = {epoch: ended for epoch, ended in self._ended.items() if epoch >= self.position.epoch}
        return {task.key: task for task in self.upcoming()}

    def next_for(self, worker: int) -> Task | None:
        free = [
            task
            for task in self.upcoming()
            if task.key not in self.in_flight
            and task.key not in self.outcomes
            and (self.stateless or self._owner[self.plan.stream_of(task.key.step)] == worker)
        ]
        return min(free, default=None)

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
        self.outcomes = {key: outcome for key, outcome in self.outcomes.items() if not isinstance(outcome, Failed)}

    def due(self) -> tuple[Position, Outcome | EpochEnd | None]:
        position = self.position
        while True:
            end = self._end_at(position)
            if end is not None:
                return position, end
            key = BatchKey(position.epoch, position.step)
            if self._gap(key):
                position = position._replace(step=self.plan.next_step(key.step))
                continue
            if self.probing and not all(
                BatchKey(key.epoch, step) in self.outcomes for step in self.plan.round_of(key.step)
            ):
                return position, None
            outcome = self.outcomes.get(key)
            if not isinstance(outcome, Skipped):
                return position, outcome
            position = self.after(position)

    def after(self, position: Position) -> Position:
        return Position(position.epoch, self.plan.next_step(position.step), position.taken + 1)

    def hand_out(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        if isinstance(outcome, Delivered):
            self.outcomes.pop(BatchKey(position.epoch, position.step))
            self.position = self.after(position)
        elif isinstance(outcome, EpochEnd):
            self.position = outcome.then
        else:
            self.position = position

    def _end_at(self, position: Position) -> EpochEnd | None:
        over = self.limit is not None and position.taken >= self.limit
        over = over or (self.plan.end is not None and position.step >= self.plan.end)
        ended = self._ended.get(position.epoch)
        if not over and ended:
            if self.probing:
                first_gap = min(self.plan.step_of(stream, turn) for stream, turn in ended.items())
                over = position.step >= self.plan.round_of(first_gap).start
            elif all(stream in ended for stream in self._streams):
                over = position.step > max(self.plan.step_of(stream, turn - 1) for stream, turn in ended.items())
        return EpochEnd(Position(position.epoch + 1, self.plan.first_step(), 0)) if over else None

    def _gap(self, key: BatchKey) -> bool:
        turn = self._ended.get(key.epoch, {}).get(self.plan.stream_of(key.step))
        return turn is not None and self.plan.turn_of(key.step) >= turn
