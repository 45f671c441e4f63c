"""What batch comes when: pure index arithmetic on epochs, steps, streams, turns and ranks.

A step is a batch's number within its epoch, over all ranks. Step ``s`` is turn ``s // num_streams`` of stream
``s % num_streams``, and belongs to rank ``s % world_size``. Steps are virtual: a stream that ended early leaves gaps.

Ranks take their steps in rounds: a round has one step of each rank, in their order. Rounds begin at ``phase``, ``phase +
world_size``, ...: the phase is 0, but where the number of ranks changed in mid-epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class BatchKey(NamedTuple):
    """Which batch."""

    epoch: int
    step: int


#: What becomes of an epoch's last round if it has too few batches for all ranks; see `detaug.DeterministicAugmenter`.
TAILS = ("drop", "pad", "uneven")


@dataclass(frozen=True)
class Plan:
    """Which steps this rank takes.

    Attributes:
        num_steps: steps per epoch over all ranks where that is known beforehand, else None.
        tail: one of `TAILS`.
        wraps_at: the places from here to the end of the last round are the epoch's first steps again; None: no place is.
    """

    num_streams: int
    rank: int = 0
    world_size: int = 1
    num_steps: int | None = None
    tail: str = "drop"
    wraps_at: int | None = None

    def stream_of(self, step: int) -> int:
        """The logical worker whose batch this is."""
        return step % self.num_streams

    def turn_of(self, step: int) -> int:
        """How many batches its stream made before it in this epoch."""
        return step // self.num_streams

    def step_of(self, stream: int, turn: int) -> int:
        """The inverse of `stream_of` and `turn_of`."""
        return turn * self.num_streams + stream

    def share_of(self, batches: int) -> int:
        """How many of so many batches this rank takes, the first of which is rank 0's."""
        if self.tail == "pad":
            return -(-batches // self.world_size)
        if self.tail == "uneven":
            return max(0, -(-(batches - self.rank) // self.world_size))
        return batches // self.world_size

    def end(self, phase: int = 0) -> int | None:
        """The first step that no rank takes any more, where it is known beforehand."""
        if self.num_steps is None or self.tail == "uneven":
            return self.num_steps
        if self.tail == "pad":
            return self.num_steps + (phase - self.num_steps) % self.world_size
        return self.num_steps - (self.num_steps - phase) % self.world_size

    def phase_of(self, step: int) -> int:
        """Where rounds begin in which `step` is this rank's."""
        return (step - self.rank) % self.world_size

    def round_of(self, step: int, phase: int = 0) -> range:
        """The steps, one for each rank, that are taken at the same time as `step`."""
        first = step - (step - phase) % self.world_size
        return range(first, first + self.world_size)

    def made_at(self, step: int) -> int:
        """The step whose batch is given at this place: `step` itself but behind `wraps_at`."""
        return (
            step
            if self.wraps_at is None or step < self.wraps_at
            else (step - self.wraps_at) % self.wraps_at
        )


class StreamEnds:
    """The ends of streams by epoch, as far as workers have found them.

    Args:
        probing: an epoch ends with the last round of steps that is complete on all ranks, else with this rank's last step.
        stride: this rank's streams are every so-maniest; which, changes with the phase.
    """

    def __init__(self, plan: Plan, probing: bool, stride: int) -> None:
        #: In which a stream has ended: of each such stream, the first turn that it does not have.
        self.epochs: dict[int, dict[int, int]] = {}
        self._plan, self._probing, self._stride = plan, probing, stride

    def is_gap(self, key: BatchKey) -> bool:
        """Whether that step's stream has ended at or before its turn."""
        turn = self.epochs.get(key.epoch, {}).get(self._plan.stream_of(key.step))
        return turn is not None and self._plan.turn_of(key.step) >= turn

    def note(self, key: BatchKey) -> None:
        """There is no such step."""
        turns = self.epochs.setdefault(key.epoch, {})
        stream, turn = self._plan.stream_of(key.step), self._plan.turn_of(key.step)
        turns[stream] = min(turn, turns.get(stream, turn))

    def forget_before(self, epoch: int) -> None:
        """Nobody asks about earlier epochs any more."""
        self.epochs = {number: turns for number, turns in self.epochs.items() if number >= epoch}

    def epochs_end(self, epoch: int, phase: int) -> int | None:
        """The first step behind the epoch's end, as far as the streams' ends tell."""
        turns = self.epochs.get(epoch, {})
        if self._probing:
            # The first round that is not complete is where all ranks stop.
            missing = (self._plan.step_of(stream, turn) for stream, turn in turns.items())
            return min((self._plan.round_of(step, phase).start for step in missing), default=None)
        own = range((phase + self._plan.rank) % self._stride, self._plan.num_streams, self._stride)
        if len(turns) < len(own) or not all(stream in turns for stream in own):
            return None
        return max(self._plan.step_of(stream, turns[stream] - 1) for stream in own) + 1
