"""A branch of the seed tree as it travels to workers, and the children of its batches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detaug.seeding.current import Current
from detaug.seeding.tree import Seed, SeedTree


@dataclass(frozen=True)
class SeedBranch:
    """Where in the seed tree a pipeline's batches are.

    Attributes:
        seed, path: the user's seed and the names below it.
        entropy: the four words that every child starts from.
        num_streams: logical workers.
    """

    seed: Seed
    path: tuple[str, ...]
    entropy: tuple[int, ...]
    num_streams: int

    @classmethod
    def of(cls, tree: SeedTree, num_streams: int) -> SeedBranch:
        """That branch, for a pipeline of so many streams."""
        return cls(tree.seed, tree.path, tuple(tree.entropy), num_streams)

    def batch(self, epoch: int, step: int) -> Current:
        """The batch at a step."""
        turn, stream = divmod(step, self.num_streams)
        return Current(self.entropy, epoch, stream, turn, self.num_streams)

    def epoch(self, epoch: int) -> np.random.SeedSequence:
        """What all streams of an epoch share."""
        return np.random.SeedSequence(self.entropy, spawn_key=(epoch,))

    def line(self, epoch: int, step: int) -> str:
        """A batch's SeedSequence as a line of Python."""
        child = "".join(f".child({name!r})" for name in self.path)
        return f"SeedTree({self.seed!r}){child}.sequence({epoch}, {step}, num_streams={self.num_streams})"
