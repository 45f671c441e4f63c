"""The same engine without the ordering, to measure what ordering costs. Not for training."""

from __future__ import annotations

from collections.abc import Iterator

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.schedule import Delivered, EpochEnd, Outcome, Position, Schedule, Task
from detaug.plan import BatchKey


class UnorderedSchedule(Schedule):
    """Hands out whatever batch is there; for endless stateless sources."""

    _handed_out: frozenset[int] = frozenset()

    def due(self) -> tuple[Position, Outcome | EpochEnd | None]:
        """Any finished batch."""
        for key, outcome in self.outcomes.items():
            if isinstance(outcome, Delivered):
                return Position(key.epoch, key.step, 0), outcome
        return self.position, None

    def after(self, position: Position) -> Position:
        """The lowest step not yet handed out."""
        handed_out = set(self._handed_out) | {position.step}
        step = self.position.step
        while step in handed_out:
            handed_out.discard(step)
            step = self.plan.next_step(step)
        self._handed_out = frozenset(handed_out)
        return Position(position.epoch, step, 0)

    def upcoming(self) -> Iterator[Task]:
        """As many tasks as with ordering, but for those handed out."""
        step, own = self.position.step, 0
        while own < self.window:
            if step not in self._handed_out:
                own += 1
                yield Task(BatchKey(self.position.epoch, step), probe=False)
            step = self.plan.next_step(step)


class UnorderedAugmenter(DeterministicAugmenter):
    """`DeterministicAugmenter` without its order."""

    def _new_schedule(self) -> Schedule:
        made = super()._new_schedule()
        return UnorderedSchedule(made.plan, made.window, max(1, self.num_processes), made.stateless)
