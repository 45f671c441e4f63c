"""The same engine without the ordering, to measure what ordering costs. Not for training."""

from __future__ import annotations

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.order.outcomes import Delivered, EpochEnd, Outcome, Position
from detaug.engine.order.schedule import Schedule
from detaug.pipeline.plan import BatchKey


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

    def hand_out(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        """As with ordering; and what was taken from the middle makes room in the window too."""
        super().hand_out(position, outcome)
        if isinstance(outcome, Delivered):
            self._settle()
            self._unwant(BatchKey(position.epoch, position.step))
            self._extend()

    def _go_forward(self, old: Position, new: Position) -> bool:
        super()._go_forward(old, new)
        return True  # not step by step, and without a limit that needs the steps counted

    def _begin_anew(self) -> None:
        super()._begin_anew()
        for step in self._handed_out:
            self._unwant(BatchKey(self.position.epoch, step))


class UnorderedAugmenter(DeterministicAugmenter):
    """`DeterministicAugmenter` without its order."""

    def _new_schedule(self) -> Schedule:
        made = super()._new_schedule()
        return UnorderedSchedule(made.plan, made.window, max(1, self.num_processes), made.stateless)
