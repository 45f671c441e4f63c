"""The order of batches, as a pure data structure: the next task of each worker, and the due batch.

Nothing in this file starts a process or reads a clock. Facts are stored; the window is computed:
- The facts are `front`, `outcomes`, `in_flight`, `on_the_way` and the ends of streams. `front` is
  the first step that no thread of the user's has taken. Each fact changes by one operation of C
  code, so an interrupt between two bytecodes leaves either the old or the new one.
- An outcome that a thread has taken is in `on_the_way` until the thread returns it: removing it is
  the last that happens. If an interrupt prevents that, the thread finds it there when it takes or
  asks for the position next, and it is due again, however many interrupts have come.
- The window's tasks are computed from the facts, in one walk, whenever a fact that they depend on
  has changed: the position, or a stream's end.

Invariants:
- Only the next `window` steps are tasks. Every other batch that arrives is dropped: any batch can
  be replayed.
- A step is a *gap* once its stream is known to have ended at or before its turn. No gap is a task.
- `_computed_for` is the front that `_window_tasks` was computed for; None after another fact has
  changed.
- An *order index* is an index in this rank's own order. It equals the step whose batch is made,
  except in a padded round (``tail="pad"``) after the epoch's last batch, which repeats the batches
  of the epoch's first steps. The step of a `Position` is an order index; all other steps are steps
  of batches. A step has at most one order index in the window.
- If the number of ranks changed in the middle of an epoch, its rounds begin at another step
  (`StepPlan`). The position determines it: a position's step always belongs to its rank.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator
from math import gcd
from typing import NamedTuple

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


class OnTheWay(NamedTuple):
    """An outcome between `Schedule.take` and the user.

    Attributes:
        position: its position.
        outcome: a batch, or the end of an epoch.
        front: the front after it.
    """

    position: Position
    outcome: Delivered | EpochEnd
    front: Position


class Schedule:
    """The order of batches and what is known of them.

    Args:
        plan: steps, streams, ranks.
        window: number of this rank's steps that may be in flight or waiting.
        num_workers: number of workers once all have started. A stream belongs to one of them.
        stateless: True: any worker may make any batch. False: a worker makes the batches of its
            own streams.
        limit: batches per epoch over all ranks; None: the user set no number.
        max_skips: number of steps of this rank in a row that may be skipped; the next failure is
            raised. None: any number.
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
        #: The end of the last epoch that was read to its end.
        self.last_epoch_end: Position | None = None
        #: The position of the batch that was taken last.
        self.last_position: Position | None = None
        self._computed_for: Position | None = None
        self.limit = limit
        self.max_skips = max_skips
        #: The first step that no thread has taken.
        self.front = self.start_of(0)
        self.outcomes: dict[BatchKey, Outcome] = {}
        #: What threads have taken and not yet returned to the user, by the thread's identifier.
        self.on_the_way: dict[int, OnTheWay] = {}
        self.in_flight: set[BatchKey] = set()
        # Every `_stream_stride`-th stream is this rank's. The first one depends on the phase.
        self._stream_stride = gcd(plan.num_streams, plan.world_size)
        self._ends = StreamEnds(plan)
        self._num_workers = max(1, num_workers)
        self._owners = StreamOwners(self._num_workers, self._stream_stride)
        #: In order. A dict, so that a batch is found without a search.
        self._window_tasks: dict[BatchKey, None] = {}

    @property
    def busy_workers(self) -> int:
        """The number of workers that can be kept busy."""
        if self.stateless:
            return self._num_workers
        return min(self._num_workers, self.plan.num_streams // self._stream_stride)

    @property
    def position(self) -> Position:
        """The first step not yet handed to the user."""
        self.put_back(threading.get_ident())
        return self.front

    @position.setter
    def position(self, position: Position) -> None:
        self.front = position
        # Afterwards: what is on the way is not due again once the front has been moved.
        self.on_the_way.clear()

    def start_of(self, epoch: int) -> Position:
        """Return this rank's first position in an epoch."""
        return Position(epoch, self.plan.rank, 0)

    def key_at(self, position: Position) -> BatchKey:
        """Return the key of the batch at a position."""
        return BatchKey(position.epoch, self.plan.step_at(position.step))

    # --- tasks

    def next_for(
        self, worker: int = 0, present: Collection[int] = (0,), is_idle: bool = True
    ) -> BatchKey | None:
        """Return the next task of a worker; None: it has none.

        Args:
            worker: index of the worker.
            present: indices of the workers that are running.
            is_idle: True: the worker has no task, so it may take over another worker's stream.
        """
        for key in self._open_tasks():
            if self.stateless or self._owners.of(self.plan.stream_of(key.step)) == worker:
                return key
        if is_idle:
            return self._task_to_take_over(worker, present)
        return None

    def _open_tasks(self) -> Iterator[BatchKey]:
        """Yield the window's tasks that no worker has begun, in order."""
        for key in self.window_tasks():
            if key not in self.in_flight and key not in self.outcomes:
                yield key

    def _task_to_take_over(self, worker: int, present: Collection[int]) -> BatchKey | None:
        """Return the first open task whose stream the worker should take over, or None."""
        plan = self.plan
        first_stream = self.front.step % self._stream_stride
        streams = range(first_stream, plan.num_streams, self._stream_stride)
        # While a worker makes a batch of a stream, it fast-forwards its copy of that stream. A
        # second worker would repeat that work.
        busy_streams = {plan.stream_of(key.step) for key in self.in_flight}
        for key in self._open_tasks():
            stream = plan.stream_of(key.step)
            if stream in busy_streams:
                continue
            if self._owners.may_take(worker, stream, present, streams):
                return key
        return None

    # --- events

    def start(self, key: BatchKey, worker: int = 0) -> None:
        """Record that a worker was assigned this task, and owns its stream from now on."""
        self.in_flight.add(key)
        if not self.stateless:
            self._owners.move(self.plan.stream_of(key.step), worker)

    def requeue(self, key: BatchKey) -> None:
        """Make a task open again because its worker is gone."""
        self.in_flight.discard(key)

    def finish(self, key: BatchKey, outcome: Outcome) -> None:
        """Record the outcome of a task. It is dropped if the window has moved past the task."""
        self.in_flight.discard(key)
        if key in self.window_tasks():
            self.outcomes[key] = outcome

    def end_stream(self, key: BatchKey) -> None:
        """Record that there is no such batch because its stream has ended.

        Several ranks must get the same number of batches, and each rank sees the ends of its own
        streams only. With several ranks, a missing batch is therefore a failure.
        """
        if self.plan.world_size > 1:
            self.finish(key, Failed(self._ended_too_soon(key)))
            return
        self.in_flight.discard(key)
        if key.epoch >= self.front.epoch:
            self._ends.note(key)
            # After `note`: a window that was computed before it would contain the gap.
            self._computed_for = None

    def _ended_too_soon(self, key: BatchKey) -> ValueError:
        """Return the error for a batch that is missing although several ranks need it."""
        length = self.plan.num_steps
        expected = f"it was to have {length}"
        if length is None:
            expected = "epochs were to have no end"
        return ValueError(
            f"the loader has no batch for step {key.step} of epoch {key.epoch}, but {expected}:"
            f" the {self.plan.world_size} ranks would not get the same number of batches. Pass as"
            " batches_per_epoch=... a number that the loader gives in every epoch, counted over"
            " all ranks"
        )

    def take(self, thread_id: int) -> TakeResult:
        """Return the due outcome and move the front past it.

        A failure, or an outcome that has not arrived, stays due: the front then moves past the gaps
        and skipped steps before it only.

        Args:
            thread_id: the thread that takes the outcome. It removes the outcome from `on_the_way`
                when it returns it to the user.
        """
        self.put_back(thread_id)
        start = self.front
        position, outcome = self.due()
        result = TakeResult(position, outcome, self._skipped_between(start, position))

        # The front changes last and in one operation. An interrupt before that leaves this step
        # due, although its batch may have to be made again.
        if isinstance(outcome, Delivered):
            front = self.after(position)
            self.on_the_way[thread_id] = OnTheWay(position, outcome, front)
            self.outcomes.pop(self.key_at(position), None)
            self.last_position = position
            self.front = front
        elif isinstance(outcome, EpochEnd):
            front = outcome.next_position
            self.on_the_way[thread_id] = OnTheWay(position, outcome, front)
            self.last_epoch_end = position
            self.front = front
        elif position != start:
            self.front = position
        return result

    def _skipped_between(self, start: Position, stop: Position) -> list[Skipped]:
        """Return the skipped outcomes of this rank's steps from `start` to before `stop`."""
        skipped = []
        # `due` does not leave the epoch, so both positions are in the same one.
        for step in range(start.step, stop.step, self.plan.world_size):
            outcome = self.outcomes.get(self.key_at(start._replace(step=step)))
            if isinstance(outcome, Skipped):
                skipped.append(outcome)
        return skipped

    def put_back(self, thread_id: int) -> None:
        """Make the outcome due again that a thread has taken and not returned, if there is one.

        It stays as it is if another thread has taken the next one meanwhile: that would be due
        again as well.
        """
        taken = self.on_the_way.get(thread_id)
        if taken is None:
            return
        # If an interrupt comes between these lines, they are run again as a whole.
        if self.front is taken.front:
            if isinstance(taken.outcome, Delivered):
                self.outcomes[self.key_at(taken.position)] = taken.outcome
            # The front moves after that: a front whose batch is missing would make the batch an
            # open task, although it has just been made.
            self.front = taken.position
        self.on_the_way.pop(thread_id, None)

    def forget_failures(self) -> None:
        """Drop all failures, so that their tasks are open again."""
        failures = [key for key, outcome in self.outcomes.items() if isinstance(outcome, Failed)]
        for key in failures:
            del self.outcomes[key]

    def forget_all(self) -> None:
        """Drop every outcome. Tasks that are in flight are not open again until they end."""
        self.outcomes.clear()

    # --- the due batch

    def due(self) -> tuple[Position, Outcome | EpochEnd | None]:
        """Return the next position that is neither gap nor skipped, and its outcome if known."""
        position = self.front
        while True:
            end = self._end_at(position)
            if end is not None:
                return position, end
            key = self.key_at(position)
            if self._ends.is_gap(key):
                position = self._after_gap(position)
                continue
            outcome = self.outcomes.get(key)
            if not isinstance(outcome, Skipped):
                return position, outcome
            num_skipped = position.num_skipped + 1
            if self.max_skips is not None and num_skipped > self.max_skips:
                return position, Failed(outcome.error)
            position = self.after(position)._replace(num_skipped=num_skipped)

    def after(self, position: Position) -> Position:
        """Return the position after a step that was handed out."""
        return Position(
            position.epoch,
            position.step + self.plan.world_size,
            position.num_taken + 1,
            position.num_before_resize,
        )

    def _after_gap(self, position: Position) -> Position:
        return position._replace(step=position.step + self.plan.world_size)

    def is_over(self, position: Position) -> bool:
        """Return whether this rank's epoch ends there by a number of steps known beforehand."""
        end = self.plan.end(self.plan.phase_of(position.step))
        if end is not None and position.step >= end:
            return True
        if self.limit is None:
            return False
        # The number of ranks may have changed in this epoch: only the batches that were left then
        # are shared among the ranks of today.
        num_left = max(0, self.limit - position.num_before_resize)
        return position.num_taken >= self.plan.share_of(num_left)

    def _streams_are_over(self, position: Position) -> bool:
        """Return whether all streams are known to have ended before the position's step."""
        end = self._ends.epochs_end(position.epoch)
        return end is not None and position.step >= end

    def _end_at(self, position: Position) -> EpochEnd | None:
        """Return the end of the position's epoch if the position has reached it, else None."""
        if self.is_over(position) or self._streams_are_over(position):
            next_start = self.start_of(position.epoch + 1)
            return EpochEnd(next_start._replace(num_skipped=position.num_skipped))
        return None

    # --- the window

    def window_tasks(self) -> dict[BatchKey, None]:
        """Return the tasks of the next `window` steps, in order; the caller must not change them.

        The window extends into later epochs once the end of an epoch is known.
        """
        front = self.front
        if self._computed_for is front:
            return self._window_tasks
        # If the front moves back to an earlier epoch, its workers meet the ends again.
        self._ends.forget_before(front.epoch)
        tasks = dict.fromkeys(self._upcoming())
        self._window_tasks = tasks
        outdated = [key for key in self.outcomes if key not in tasks]
        for key in outdated:
            self.outcomes.pop(key, None)
        # Last: an interrupt before this line leaves the window outdated, and the next call computes
        # it again and drops the rest of the outdated outcomes.
        self._computed_for = front
        return tasks

    def _upcoming(self) -> Iterator[BatchKey]:
        """Yield the keys of the next `window` steps that are no gaps, in order."""
        position = self.front
        # A loader without batches has empty epochs only: without a limit this walk would not end.
        last_epoch = position.epoch + self.window
        num_upcoming = 0
        while num_upcoming < self.window and position.epoch <= last_epoch:
            end = self._end_at(position)
            if end is not None:
                position = end.next_position
                continue
            key = self.key_at(position)
            if self._ends.is_gap(key):
                position = self._after_gap(position)
                continue
            yield key
            num_upcoming += 1
            position = self.after(position)
