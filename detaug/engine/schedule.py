"""Which batch is to be made next, by whom, and which is due: the engine's pure part.

There are neither processes nor clocks here. What is known (the facts) and what follows from it
(which batches are wanted) are kept apart:
- The facts are `position`, `outcomes`, `in_flight` and where streams ended. `position` is the first
  step not yet handed to the user. Each fact changes by one operation of C code, so an interrupt
  between two bytecodes leaves either the old or the new one.
- The batches that are wanted are computed from the facts, in one walk over the window, whenever a
  fact that they follow from has changed: the position, or a stream's end.

Invariants:
- Only the `window` steps that come next are wanted. Everything else that arrives is dropped: any
  batch can be made again.
- A step is a *gap* once its stream is known to have ended at or before its turn. No gap is wanted.
- `_settled` is the position that `_wanted` is right for; None once another fact has changed.
- A *place* is a step in this rank's order. It is the step whose batch is made unless the place is
  in a padded round (``tail="pad"``) behind the epoch's last batch, which has the batch of one of
  the epoch's first steps. Positions are places; everything else holds steps. A step is wanted at
  one place at most.
- Where the number of ranks changed in the middle of an epoch, its rounds begin elsewhere
  (`StepPlan`). A position says where: its own step is of its rank.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import gcd

from detaug.engine.outcomes import (
    Delivered,
    EpochEnd,
    Failed,
    Outcome,
    Position,
    Skipped,
    TakeResult,
)
from detaug.engine.owners import StreamOwners
from detaug.pipeline.plan import BatchKey, StepPlan, StreamEnds


class Schedule:
    """The order of batches and what is known of them.

    Args:
        plan: Steps, streams, ranks.
        window: How many of this rank's steps may be in flight or waiting.
        num_workers: Processes that there are to be. A stream-bound stream belongs to one of them.
        stateless: Whether any process may make any batch.
        limit: Batches per epoch over all ranks, where the user set a number.
        max_skips: How many steps of this rank in a row may be skipped; the next one counts as
            failed. None: any number.
    """

    def __init__(
        self,
        plan: StepPlan,
        window: int,
        num_workers: int,
        stateless: bool,
        limit: int | None = None,
        max_skips: int | None = None,
    ) -> None:
        self.plan = plan
        self.window = window
        self.stateless = stateless
        #: Where the last epoch was over that was taken to its end.
        self.ended: Position | None = None
        #: Where the batch was that was taken last.
        self.taken: Position | None = None
        self._settled: Position | None = None
        self.limit = limit
        self.max_skips = max_skips
        self.position = self.start_of(0)
        self.outcomes: dict[BatchKey, Outcome] = {}
        self.in_flight: set[BatchKey] = set()
        # Every stride-th stream is this rank's. Which ones, changes with the phase.
        self._stride = gcd(plan.num_streams, plan.world_size)
        self._ends = StreamEnds(plan)
        self._num_workers = max(1, num_workers)
        self._owners = StreamOwners(self._num_workers, self._stride)
        #: In the order of their places. A dict, so that a batch is found without a search.
        self._wanted: dict[BatchKey, None] = {}

    @property
    def busy_workers(self) -> int:
        """How many workers can be kept busy."""
        if self.stateless:
            return self._num_workers
        return min(self._num_workers, self.plan.num_streams // self._stride)

    def start_of(self, epoch: int) -> Position:
        """Return this rank's first position in an epoch."""
        return Position(epoch, self.plan.rank, 0)

    def key_at(self, position: Position) -> BatchKey:
        """Return the batch that position is about."""
        return BatchKey(position.epoch, self.plan.made_at(position.step))

    # --- what is to be made

    def next_for(
        self, worker: int = 0, present: Collection[int] = (0,), is_idle: bool = True
    ) -> BatchKey | None:
        """Return the first batch not yet begun that this worker is to make; None: there is none.

        Args:
            worker: Index of the worker.
            present: Indices of the workers that are there.
            is_idle: The worker has nothing to do. It may then take another worker's stream over.
        """
        for key in self._not_begun():
            if self.stateless or self._owners.of(self.plan.stream_of(key.step)) == worker:
                return key
        if is_idle:
            return self._to_take_over(worker, present)
        return None

    def _not_begun(self) -> Iterator[BatchKey]:
        for key in self.wanted():
            if key not in self.in_flight and key not in self.outcomes:
                yield key

    def _to_take_over(self, worker: int, present: Collection[int]) -> BatchKey | None:
        """Return the first batch of a stream that the worker is to take over, if there is one."""
        plan = self.plan
        streams = range(self.position.step % self._stride, plan.num_streams, self._stride)
        # A stream that is just being stepped forward would only be stepped forward twice.
        in_flight = {plan.stream_of(key.step) for key in self.in_flight}
        for key in self._not_begun():
            stream = plan.stream_of(key.step)
            if stream in in_flight:
                continue
            if self._owners.may_take(worker, stream, present, streams):
                return key
        return None

    # --- what happens

    def start(self, key: BatchKey, worker: int = 0) -> None:
        """Note that a worker was given this batch to make: its stream is that worker's now."""
        self.in_flight.add(key)
        if not self.stateless:
            self._owners.move(self.plan.stream_of(key.step), worker)

    def lose(self, key: BatchKey) -> None:
        """Note that its worker is gone: it is to be made again."""
        self.in_flight.discard(key)

    def finish(self, key: BatchKey, outcome: Outcome) -> None:
        """Note what became of a batch. It is dropped if it is no longer wanted."""
        self.in_flight.discard(key)
        if key in self.wanted():
            self.outcomes[key] = outcome

    def end_stream(self, key: BatchKey) -> None:
        """Note that there is no such batch: its stream has ended.

        Several ranks must get the same number of batches, and each of them sees the ends of its
        own streams alone. For them a batch that is missing has failed.
        """
        if self.plan.world_size > 1:
            self.finish(key, Failed(self._ended_too_soon(key)))
            return
        self.in_flight.discard(key)
        if key.epoch >= self.position.epoch:
            self._ends.note(key)
            self._settled = None

    def _ended_too_soon(self, key: BatchKey) -> ValueError:
        length = self.plan.num_steps
        expected = "epochs were to have no end" if length is None else f"it was to have {length}"
        return ValueError(
            f"the loader has no batch for step {key.step} of epoch {key.epoch}, but {expected}: "
            "the "
            f"{self.plan.world_size} ranks would not get the same number of batches. Pass as "
            "batches_per_epoch=... a number that the loader gives in every epoch, counted over all "
            "ranks"
        )

    def take(self) -> TakeResult:
        """Return the due outcome and move the position past it.

        A failure, or an outcome that has not arrived, stays due: the position then moves past the
        gaps and skipped steps before it only.
        """
        start = self.position
        position, outcome = self.due()
        taken = TakeResult(position, outcome, self._skipped_between(start, position))

        # The position changes last and in one operation. An interrupt before that leaves this step
        # due, although its batch may have to be made again.
        if isinstance(outcome, Delivered):
            next_position = self.after(position)
            self.outcomes.pop(self.key_at(position), None)
            self.taken = position
            self.position = next_position
        elif isinstance(outcome, EpochEnd):
            self.ended = position
            self.position = outcome.then
        elif position != start:
            self.position = position
        return taken

    def _skipped_between(self, start: Position, stop: Position) -> list[Skipped]:
        """Return the skipped outcomes of this rank's steps from `start` to before `stop`."""
        skipped = []
        for step in range(start.step, stop.step, self.plan.world_size):
            outcome = self.outcomes.get(self.key_at(start._replace(step=step)))
            if isinstance(outcome, Skipped):
                skipped.append(outcome)
        return skipped

    def put_back(self, position: Position, outcome: Outcome | EpochEnd | None) -> None:
        """Make due again what `take` took, or was about to take."""
        if isinstance(outcome, Delivered):
            self.outcomes[self.key_at(position)] = outcome
        if isinstance(outcome, (Delivered, EpochEnd)):
            self.position = position

    def forget_failures(self) -> None:
        """Have what failed tried again."""
        failures = [key for key, outcome in self.outcomes.items() if isinstance(outcome, Failed)]
        for key in failures:
            del self.outcomes[key]

    def forget_all(self) -> None:
        """Drop every outcome; what is in flight will be dropped as it arrives."""
        self.outcomes.clear()

    # --- what is due

    def due(self) -> tuple[Position, Outcome | EpochEnd | None]:
        """Return the next step that is no gap, and its outcome; None while it is not known."""
        position = self.position
        while True:
            end = self._end_at(position)
            if end is not None:
                return position, end
            key = self.key_at(position)
            if self._ends.is_gap(key):
                position = self._behind_gap(position)
                continue
            outcome = self.outcomes.get(key)
            if not isinstance(outcome, Skipped):
                return position, outcome
            skipped = position.skipped + 1
            is_one_too_many = self.max_skips is not None and skipped > self.max_skips
            if is_one_too_many and outcome.error is not None:
                return position, Failed(outcome.error)
            position = self.after(position)._replace(skipped=skipped)

    def after(self, position: Position) -> Position:
        """Return the position behind a step that was handed out."""
        return Position(
            position.epoch,
            position.step + self.plan.world_size,
            position.taken + 1,
            position.before,
        )

    def _behind_gap(self, position: Position) -> Position:
        return position._replace(step=position.step + self.plan.world_size)

    def is_over(self, position: Position) -> bool:
        """Return whether this rank has no more in that epoch, by numbers known beforehand."""
        last = self.plan.end(self.plan.phase_of(position.step))
        if last is not None and position.step >= last:
            return True
        if self.limit is None:
            return False
        # Of the batches that were left when there came to be as many ranks as now.
        left = max(0, self.limit - position.before)
        return position.taken >= self.plan.share_of(left)

    def _end_at(self, position: Position) -> EpochEnd | None:
        """Return the end of the position's epoch if it lies there."""
        over = self.is_over(position)
        if not over:
            end = self._ends.epochs_end(position.epoch)
            over = end is not None and position.step >= end
        if not over:
            return None
        return EpochEnd(self.start_of(position.epoch + 1)._replace(skipped=position.skipped))

    # --- what is wanted

    def wanted(self) -> dict[BatchKey, None]:
        """Return the batches of the next `window` steps, which must not be changed.

        Epochs follow each other once their end is known.
        """
        position = self.position
        if self._settled is position:
            return self._wanted
        self._ends.forget_before(position.epoch)
        wanted = dict.fromkeys(self._upcoming())
        self._wanted = wanted
        for key in [key for key in self.outcomes if key not in wanted]:
            self.outcomes.pop(key, None)
        self._settled = position
        return wanted

    def _upcoming(self) -> Iterator[BatchKey]:
        """Yield as many batches as the window has room for, in the order of their places."""
        position = self.position
        last_epoch = position.epoch + self.window
        num_upcoming = 0
        while num_upcoming < self.window and position.epoch <= last_epoch:
            end = self._end_at(position)
            if end is not None:
                position = end.then
                continue
            key = self.key_at(position)
            if self._ends.is_gap(key):
                position = self._behind_gap(position)
                continue
            yield key
            num_upcoming += 1
            position = self.after(position)
