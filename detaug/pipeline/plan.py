"""What batch comes when: pure index arithmetic on epochs, steps, streams, turns and ranks.

A step is a batch's number within its epoch, over all ranks. Step ``s`` is turn ``s // num_streams`` of stream
``s % num_streams``, and belongs to rank ``s % world_size``. Steps are virtual: a stream that ended early leaves gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class BatchKey(NamedTuple):
    """Which batch: an epoch and a step in it."""

    epoch: int
    step: int


@dataclass(frozen=True)
class Plan:
    """Which steps this rank takes.

    Attributes:
        num_streams: logical workers.
        rank, world_size: this process's place among those that share the global stream.
        num_steps: steps per epoch over all ranks where that is known beforehand, else None.
    """

    num_streams: int
    rank: int = 0
    world_size: int = 1
    num_steps: int | None = None

    def stream_of(self, step: int) -> int:
        """The logical worker whose batch this is."""
        return step % self.num_streams

    def turn_of(self, step: int) -> int:
        """How many batches its stream made before it in this epoch."""
        return step // self.num_streams

    def step_of(self, stream: int, turn: int) -> int:
        """The inverse of `stream_of` and `turn_of`."""
        return turn * self.num_streams + stream

    @property
    def steps_per_rank(self) -> int | None:
        """Steps that each rank takes in an epoch; the tail that does not fill every rank is dropped."""
        return None if self.num_steps is None else self.num_steps // self.world_size

    @property
    def end(self) -> int | None:
        """The first step that no rank takes any more, where it is known beforehand."""
        per_rank = self.steps_per_rank
        return None if per_rank is None else per_rank * self.world_size

    def first_step(self) -> int:
        """This rank's first step of an epoch."""
        return self.rank

    def next_step(self, step: int) -> int:
        """This rank's step after `step`."""
        return step + self.world_size

    def round_of(self, step: int) -> range:
        """The steps, one for each rank, that are taken at the same time as `step`."""
        first = step - step % self.world_size
        return range(first, first + self.world_size)
