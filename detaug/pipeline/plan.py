"""Index arithmetic on epochs, steps, streams, turns and ranks.

A step is a batch's number within its epoch, over all ranks. Step ``s`` is turn ``s // num_streams``
of stream ``s % num_streams``, and belongs to rank ``s % world_size``.

Ranks take their steps in rounds: a round has one step of each rank, in their order. Rounds begin at
``phase``, ``phase + world_size``, ... The phase is 0 unless the number of ranks changed in the
middle of the epoch.

Steps are virtual: a stream that ended early leaves gaps. Only a single rank may meet one. Several
ranks know the number of steps beforehand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class BatchKey(NamedTuple):
    """The epoch and step of a batch."""

    epoch: int
    step: int


def num_batches_of(num_samples: int, batch_size: int, drop_last: bool) -> int:
    """Return the number of batches; a smaller last one counts unless `drop_last` leaves it out."""
    if drop_last:
        return num_samples // batch_size
    return -(-num_samples // batch_size)


#: What ranks do with an epoch's last round if it has too few batches for all of them; see
#: `detaug.DeterministicAugmenter`.
TAILS = ("drop", "pad")


@dataclass(frozen=True)
class StepPlan:
    """The steps that this rank takes.

    Attributes:
        num_steps: steps per epoch over all ranks if that is known beforehand, else None.
        tail: one of `TAILS`.
    """

    num_streams: int
    rank: int = 0
    world_size: int = 1
    num_steps: int | None = None
    tail: str = "drop"

    def stream_of(self, step: int) -> int:
        """Return the logical worker whose batch this is."""
        return step % self.num_streams

    def turn_of(self, step: int) -> int:
        """Return how many batches of this epoch its stream made before it."""
        return step // self.num_streams

    def step_of(self, stream: int, turn: int) -> int:
        """Return the step of a stream's turn: the inverse of `stream_of` and `turn_of`."""
        return turn * self.num_streams + stream

    def share_of(self, batches: int) -> int:
        """Return how many batches this rank takes if the first of them is rank 0's."""
        if self.tail == "pad":
            # Rounded up: the incomplete round counts for every rank.
            return -(-batches // self.world_size)
        return batches // self.world_size

    def end(self, phase: int = 0) -> int | None:
        """Return the first step that no rank takes any more; None if that is not known."""
        if self.num_steps is None:
            return None
        # All ranks get equally many batches: an incomplete last round is filled up or left out.
        if self.tail == "pad":
            return self.num_steps + (phase - self.num_steps) % self.world_size
        return self.num_steps - (self.num_steps - phase) % self.world_size

    def phase_of(self, step: int) -> int:
        """Return the phase of the rounds in which `step` is this rank's."""
        return (step - self.rank) % self.world_size

    def step_at(self, order_index: int) -> int:
        """Return the step whose batch is handed out at an index of the rank's order.

        It is the index itself, except after the epoch's last batch: a padded round repeats the
        epoch's first batches.
        """
        if self.num_steps is None or order_index < self.num_steps:
            return order_index
        return (order_index - self.num_steps) % self.num_steps


class StreamEnds:
    """The ends of streams by epoch, as far as workers have met them."""

    def __init__(self, plan: StepPlan) -> None:
        #: By epoch: the first turn that a stream does not have, by stream.
        self.epochs: dict[int, dict[int, int]] = {}
        self._plan = plan

    def is_gap(self, key: BatchKey) -> bool:
        """Return whether that step's stream has ended at or before its turn."""
        ends = self.epochs.get(key.epoch, {})
        end = ends.get(self._plan.stream_of(key.step))
        return end is not None and self._plan.turn_of(key.step) >= end

    def note(self, key: BatchKey) -> None:
        """Record that there is no such step."""
        turns = self.epochs.setdefault(key.epoch, {})
        stream = self._plan.stream_of(key.step)
        turn = self._plan.turn_of(key.step)
        # Workers may find the end at several turns, in any order; the first one is the end.
        turns[stream] = min(turn, turns.get(stream, turn))

    def forget_before(self, epoch: int) -> None:
        """Forget the earlier epochs: their steps are not wanted any more."""
        # Replaced whole: an interrupt leaves the old dict or the new one.
        self.epochs = {key: turns for key, turns in self.epochs.items() if key >= epoch}

    def epochs_end(self, epoch: int) -> int | None:
        """Return the first step after the epoch's end; None while a stream has not ended."""
        turns = self.epochs.get(epoch, {})
        # A stream whose end is unknown may still have the epoch's last batch.
        if len(turns) < self._plan.num_streams:
            return None
        last_steps = [self._plan.step_of(stream, turn - 1) for stream, turn in turns.items()]
        return max(last_steps) + 1
