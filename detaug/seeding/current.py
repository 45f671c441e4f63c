"""The batches below a branch of the seed tree, and `detaug.current()`, the one being made."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy as np

from detaug.seeding import batch_memory
from detaug.seeding.tree import SeedTree, make_generator


@dataclass(frozen=True)
class SeedBranch:
    """The place of a pipeline's batches in the seed tree.

    Attributes:
        tree: the branch that they are below.
        num_streams: number of logical workers.
    """

    tree: SeedTree
    num_streams: int

    def line(self, epoch: int, step: int) -> str:
        """Return a batch's SeedSequence as a line of Python."""
        return f"{self.tree!r}.sequence({epoch}, {step}, num_streams={self.num_streams})"


class Current:
    """The batch (or the sample of a batch) that is being made.

    Attributes:
        epoch: its index.
        step: the batch's index in the epoch, in the one global order of all ranks.
        stream: the logical worker's index.
        turn: number of batches that this logical worker made before it in the epoch.
        sample: the sample's index in the batch if one is being made by itself; else None.
    """

    def __init__(
        self, branch: SeedBranch, epoch: int, step: int, sample: int | None = None
    ) -> None:
        self.epoch = epoch
        self.step = step
        self.sample = sample
        self._branch = branch
        self.turn, self.stream = divmod(step, branch.num_streams)
        self._generator: np.random.Generator | None = None
        self._calls = 0

    def sequence(self, sample: int | None = None) -> np.random.SeedSequence:
        """Return the SeedSequence of this batch, or of one sample of it."""
        if sample is None:
            sample = self.sample
        key: tuple[int, ...] = (self.epoch, self.stream, self.turn)
        if sample is not None:
            key += (sample,)
        return np.random.SeedSequence(self.entropy, spawn_key=key)

    @property
    def entropy(self) -> tuple[int, ...]:
        """The four words of this seed branch, from which every child of it is made."""
        return self._branch.tree._entropy

    @property
    def generator(self) -> np.random.Generator:
        """The batch's (or the sample's) own Generator.

        It is one object for the whole batch: every draw continues where the last one ended.
        """
        if self._generator is None:
            self._generator = make_generator(self.sequence())
        return self._generator

    def next_sample_generator(self) -> np.random.Generator:
        """Return the Generator of the next sample: the n-th call in a batch gets sample child n."""
        if self.sample is not None:
            return self.generator
        sample = self._calls
        self._calls += 1
        return make_generator(self.sequence(sample))

    def of_sample(self, sample: int) -> Current:
        """Return the same batch, seen from one of its samples."""
        return Current(self._branch, self.epoch, self.step, sample)

    def empty(
        self, shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = np.float32
    ) -> np.ndarray[Any, Any]:
        """Return an uninitialised array for a large part of this batch, which is not copied again.

        In a worker it lies in the shared memory that carries the batch; elsewhere it is an ordinary
        array. Its contents are undefined, so write all of it. Use it for this batch only: an array
        that the loader still holds when the batch is done is copied, as any other array is (a
        generator function's frame holds its last value). A process that the loader forks in the
        meantime shares it: what one writes, the other sees.

        Args:
            shape: of the array; a number or several.
            dtype: of its elements.
        """
        return batch_memory.empty(shape, dtype)

    def __repr__(self) -> str:
        return f"<epoch {self.epoch}, step {self.step}, stream {self.stream}, sample {self.sample}>"


class _Making(threading.local):
    """The batch that each thread is making."""

    batch: Current | None = None


_making = _Making()


def current() -> Current:
    """Return the batch that is being made in this thread.

    It has `.generator`, `.epoch`, `.step`, `.stream`, `.turn` and `.sample`.

    Raises:
        RuntimeError: no batch is being made here.
    """
    if _making.batch is None:
        raise RuntimeError(
            "detaug.current() is known only while a DeterministicAugmenter makes a batch (inside "
            "its loader or transform, in the thread that called it). Elsewhere, take a Generator "
            "from detaug.SeedTree(seed).generator(epoch, step)."
        )
    return _making.batch


def is_making() -> bool:
    """Return whether a batch is being made in this thread: global random states are then seeded."""
    return _making.batch is not None


@contextmanager
def making(batch: Current | None) -> Iterator[None]:
    """Let `current()` return `batch` inside the block; None: no batch is being made."""
    outer = _making.batch
    _making.batch = batch
    try:
        yield
    finally:
        _making.batch = outer
