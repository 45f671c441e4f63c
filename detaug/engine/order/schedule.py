"""Which batch is to be made next, by whom, and which is due: the engine's pure part, without processes or clocks.

What is known (the facts) and what follows from it (which steps are wanted) are kept apart:
- The facts are `position`, `outcomes`, `in_flight` and where streams ended. `position` is the first step not yet handed
  to the user. Each fact changes by one operation of C code, so an interrupt between two bytecodes leaves either the old
  or the new one.
- The steps that are wanted are computed anew from the facts, in one walk over the window, whenever a fact that they follow
  from has changed: the position, or a stream's end.

Invariants:
- Only the `window` steps that come next are wanted. Everything else that arrives is dropped: any batch can be made
  again.
- A step is a *gap* once its stream is known to have ended at or before its turn. No gap is wanted.
- `_settled` is the position that `_wanted` is right for; None once another fact has changed.
- A *place* is a step in this rank's order. It is the step whose batch is made but for padding (``tail="pad"``), where a
  place behind the epoch's last batch has the batch of one of its first steps. Positions are places; everything else holds
  steps. A step is wanted at one place at most.
- Where the number of ranks changed in mid-epoch, rounds begin elsewhere in that epoch, see `Plan`. A position says where:
  its own step is of its rank.
"""

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
    Taken,
    Task,
)
from detaug.pipeline.plan import BatchKey, Plan, StreamEnds


class Schedule:
    """The order of batches and what is known of them.

    Args:
        plan: steps, streams, ranks.
        window: how many of this rank's steps may be in flight or waiting.
        num_workers: processes; a stream-bound stream belongs to one of them, unless any may make any batch (`stateless`).
        limit: batches per epoch over all ranks, where the user set a number.
        probing: ranks must agree on where a finite stream-bound source ends, so the other ranks' steps are looked at
            too, and the epoch ends with the last round of steps that is complete. Only with tail="drop".
        max_skips: how many steps of this rank in a row may be skipped; the next one that is counts as failed. None: any.
    """

    def __init__(
        self,
        plan: Plan,
        window: int,
        num_workers: int,
        stateless: bool,
        limit: int | None = None,
        probing: bool = False,
        max_skips: int | None = None,
    ) -> None:
        self.plan = plan
        self.window = window
        self.stateless = stateless
        self.ended: Position | None = (
            None  # where the last epoch was over that was taken to its end
        )
        self.taken: Position | None = None  # where the batch was that was taken last
        self._settled: Position | None = None
        self.limit = limit
        self.max_skips = max_skips
        self.probing = probing and plan.world_size > 1
        self.position = self.start_of(0)
        self.outcomes: dict[BatchKey, Outcome] = {}
        self.in_flight: set[BatchKey] = set()
        # This rank's streams are every so-maniest; which, changes with the phase.
        self._stride = 1 if self.probing else gcd(plan.num_streams, plan.world_size)
        self._ends = StreamEnds(plan, self.probing, self._stride)
        self._num_workers = max(1, num_workers)
        self._wanted: dict[BatchKey, Task] = {}  # in the order of their places

    @property
    def busy_workers(self) -> int:
        """How many workers can be kept busy."""
        return (
            self._num_workers
            if self.stateless
            else min(self._num_workers, self.plan.num_streams // self._stride)
        )

    def start_of(self, epoch: int) -> Position:
        """This rank's first position in an epoch."""
        return Position(epoch, self.plan.rank, 0)

    def key_at(self, position: Position) -> BatchKey:
        """Which batch that position is about."""
        return BatchKey(position.epoch, self.plan.made_at(position.step))

    # --- what is to be made

    def next_for(self, worker: int) -> Task | None:
        """The lowest task not yet started that this worker may take; None: there is nothing to do for it now."""
        for key, task in self.wanted().items():
            if key in self.in_flight or key in self.outcomes:
                continue
            if (
                self.stateless
                or self.plan.stream_of(key.step) // self._stride % self._num_workers == worker
            ):
                return task
        return None

    # --- what happens

    def start(self, key: BatchKey) -> None:
        """A worker was given this task."""
        self.in_flight.add(key)

    def lose(self, key: BatchKey) -> None:
        """Its worker is gone; it is to be made again."""
        self.in_flight.discard(key)

    def finish(self, key: BatchKey, outcome: Outcome) -> None:
        """A task is done. Its outcome is dropped if the step is no longer wanted."""
        self.in_flight.discard(key)
        if key in self.wanted():
            self.outcomes[key] = outcome

    def end_stream(self, key: BatchKey) -> None:
        """There is no such batch: its stream has ended."""
        if (length := self.plan.wraps_at) is not None:
            too_soon = ValueError(
                f"the loader has no batch for step {key.step} of epoch {key.epoch}, but an epoch was to have {length}: "
                "with tail='pad' each rank gets as many batches as that says. Pass the right batches_per_epoch, or another tail"
            )
            self.finish(key, Failed(too_soon))
            return
        self.in_flight.discard(key)
        if key.epoch >= self.position.epoch:
            self._ends.note(key)
            self._settled = None

    def take(self) -> Taken:
        """Take what is due, if it is there: the position moves behind it, or past gaps and skipped steps only where it is a
        failure or not known. It moves last of all."""
        before, (position, outcome) = self.position, self.due()
        steps = range(before.step, position.step, self.plan.world_size)
        passed = [self.outcomes.get(self.key_at(before._replace(step=step))) for step in steps]
        taken = Taken(position, outcome, [each for each in passed if isinstance(each, Skipped)])
        if isinstance(outcome, Delivered):
            then = self.after(position)
            self.outcomes.pop(self.key_at(position), None)
            self.taken = position
            self.position = then
        elif isinstance(outcome, EpochEnd):
            self.ended = position
            self.position = outcome.then
        elif position != self.position:
            self.position = position
        return taken

    def put_back(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        """What `take` took, or was about to, is due again."""
        if isinstance(outcome, Delivered):
            self.outcomes[self.key_at(position)] = outcome
        if isinstance(outcome, (Delivered, EpochEnd)):
            self.position = position

    def forget_failures(self) -> None:
        """What failed may be tried again."""
        for key in [key for key, outcome in self.outcomes.items() if isinstance(outcome, Failed)]:
            del self.outcomes[key]

    def forget_all(self) -> None:
        """Drop every outcome; what is in flight will be dropped as it arrives."""
        self.outcomes.clear()

    # --- what is due

    def due(self) -> tuple[Position, Outcome | EpochEnd | None]:
        """The next step that is no gap, and its outcome; None while it is not known. Changes nothing."""
        position = self.position
        while True:
            end = self._end_at(position)
            if end is not None:
                return position, end
            key = self.key_at(position)
            if self._ends.epochs and self._ends.is_gap(key):
                position = position._replace(step=position.step + self.plan.world_size)
                continue
            if self.probing and any(
                BatchKey(key.epoch, step) not in self.outcomes for step in self._round_of(position)
            ):
                return position, None
            outcome = self.outcomes.get(key)
            if isinstance(outcome, Skipped):
                skipped = position.skipped + 1
                if (
                    self.max_skips is not None
                    and skipped > self.max_skips
                    and outcome.error is not None
                ):
                    return position, Failed(outcome.error)
                position = self.after(position)._replace(skipped=skipped)
                continue
            return position, outcome

    def after(self, position: Position) -> Position:
        """The position behind a step that was handed out."""
        return Position(
            position.epoch,
            position.step + self.plan.world_size,
            position.taken + 1,
            position.before,
        )

    def is_over(self, position: Position) -> bool:
        """Whether this rank has no more in that epoch, by numbers that are known beforehand."""
        last = self.plan.end(self.plan.phase_of(position.step))
        if last is not None and position.step >= last:
            return True
        # Of those that were left when there came to be as many ranks as now.
        return self.limit is not None and position.taken >= self.plan.share_of(
            max(0, self.limit - position.before)
        )

    def _end_at(self, position: Position) -> EpochEnd | None:
        over = self.is_over(position)
        if not over and self._ends.epochs:
            end = self._ends.epochs_end(position.epoch, self.plan.phase_of(position.step))
            over = end is not None and position.step >= end
        return (
            EpochEnd(self.start_of(position.epoch + 1)._replace(skipped=position.skipped))
            if over
            else None
        )

    def _round_of(self, position: Position) -> range:
        """The steps that all ranks take at the time of this rank's position."""
        return self.plan.round_of(position.step, self.plan.phase_of(position.step))

    # --- what is wanted

    def wanted(self) -> dict[BatchKey, Task]:
        """The tasks of the next `window` steps; epochs follow each other once their end is known. Not to be changed."""
        position = self.position
        if self._settled is position:
            return self._wanted
        self._ends.forget_before(position.epoch)
        wanted = {task.key: task for task in self._upcoming()}
        self._wanted = wanted
        for key in [key for key in self.outcomes if key not in wanted]:
            self.outcomes.pop(key, None)
        self._settled = position
        return wanted

    def _upcoming(self) -> Iterator[Task]:
        """As many steps as the window has room for, in order; of other ranks those that are looked at, beside them."""
        position, last_epoch, own = self.position, self.position.epoch + self.window, 0
        while own < self.window and position.epoch <= last_epoch:
            end = self._end_at(position)
            if end is not None:
                position = end.then
                continue
            key = self.key_at(position)
            if self._ends.epochs and self._ends.is_gap(key):
                position = position._replace(step=position.step + self.plan.world_size)
                continue
            if self.probing:
                for step in self._round_of(position):
                    yield Task(BatchKey(key.epoch, step), probe=step != key.step)
            else:
                yield Task(key, probe=False)
            own += 1
            position = self.after(position)
