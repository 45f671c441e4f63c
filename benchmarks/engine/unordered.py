"""The same engine without the ordering, to measure what ordering costs. Not for training."""

from __future__ import annotations

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.engine.order.outcomes import Delivered, EpochEnd, Outcome, Position
from detaug.engine.order.schedule import Schedule
from detaug.pipeline.plan import BatchKey


class UnorderedSchedule(Schedule):
    """Hands out whatever batch is there; for endless stateless sources."""

    _handed_out: frozenset[int] = frozenset()
    _then: Position | None = None

    def due(self) -> tuple[Position, Outcome | EpochEnd | None]:
        """Any finished batch."""
        for key, outcome in self.outcomes.items():
            if isinstance(outcome, Delivered):
                return Position(key.epoch, key.step, 0), outcome
        return self.position, None

    def hand_out(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        """As with ordering, but that the position moves to the lowest step not yet handed out; and what was taken from the
        middle makes room in the window too."""
        if isinstance(outcome, Delivered):
            handed_out, step = {*self._handed_out, position.step}, self.position.step
            while step in handed_out:
                handed_out.discard(step)
                step = self.plan.next_step(step)
            self._handed_out, self._then = frozenset(handed_out), Position(position.epoch, step, 0)
        super().hand_out(position, outcome)
        if isinstance(outcome, Delivered):
            self._settle()
            self._unwant(BatchKey(position.epoch, position.step))
            self._extend()

    def after(self, position: Position) -> Position:
        """Where the position moves to when a batch is handed out; else the step behind this one."""
        then, self._then = self._then, None
        return super().after(position) if then is None else then

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
