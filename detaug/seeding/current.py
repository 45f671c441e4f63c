"""The batch that is being made, `detaug.current()`, and the branch of its seeds."""

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
    """The part of the seed tree that holds a pipeline's batches."""

    tree: SeedTree
    num_streams: int

    def line(self, epoch: int, step: int) -> str:
        """Return a batch's SeedSequence as a line of Python."""
        return f"{self.tree!r}.sequence({epoch}, {step}, num_streams={self.num_streams})"


class Current:
    """The batch (or the sample of a batch) that is being made.

    Attributes:
        epoch: the epoch.
        step: the batch's index in the epoch, in the order common to all ranks.
        stream: the logical worker.
        turn: the number of batches that this logical worker made before it in the epoch.
        sample: the index of the sample, if a single sample is being made; else None.
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
        """Return the SeedSequence of this batch, or of one of its samples."""
        key: tuple[int, ...] = (self.epoch, self.stream, self.turn)
        index = self.sample if sample is None else sample
        if index is not None:
            key = (*key, index)
        return np.random.SeedSequence(self.entropy, spawn_key=key)

    @property
    def entropy(self) -> tuple[int, ...]:
        """The four uint32 words of this seed branch, from which all its children are made."""
        return tuple(self._branch.tree.entropy)

    @property
    def generator(self) -> np.random.Generator:
        """The batch's (or the sample's) own Generator.

        It is one object for the whole batch, so that draws follow each other.
        """
        if self._generator is None:
            # On first use: many pipelines draw from the global generators alone.
            self._generator = make_generator(self.sequence())
        return self._generator

    def next_sample_generator(self) -> np.random.Generator:
        """Return the Generator of the next sample: the n-th call in a batch gets sample child n."""
        if self.sample is not None:
            return self.generator
        # Counted per batch: a count per process would depend on the batches made before.
        index = self._calls
        self._calls += 1
        return make_generator(self.sequence(index))

    def of_sample(self, sample: int) -> Current:
        """Return the same batch from the view of one of its samples."""
        return Current(self._branch, self.epoch, self.step, sample)

    def empty(
        self, shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = np.float32
    ) -> np.ndarray[Any, Any]:
        """Return an uninitialised array for a large part of this batch, which saves a copy.

        In a worker it lies in the shared memory in which the batch is sent; elsewhere it is an
        ordinary array. Its contents are undefined, so write all of it. Use it for this batch only:
        if the loader still holds it when the batch is complete, it is copied like any other array
        (generator functions do: their frames hold what they yielded last). A process that the
        loader forks meanwhile shares the memory: each sees what the other writes.

        Args:
            shape: of the array; one integer or several.
            dtype: of its elements.
        """
        return batch_memory.empty(shape, dtype)

    def __repr__(self) -> str:
        return f"<epoch {self.epoch}, step {self.step}, stream {self.stream}, sample {self.sample}>"


class _Making(threading.local):
    """The batch that each thread is making: other threads of the program are making none."""

    batch: Current | None = None


_making = _Making()


def current() -> Current:
    """Return the batch that is being made in this thread.

    It has `.generator`, `.epoch`, `.step`, `.stream` and `.sample`.

    Raises:
        RuntimeError: no batch is being made in this thread.
    """
    if _making.batch is None:
        raise RuntimeError(
            "detaug.current() is known only while a DeterministicAugmenter makes a batch (inside "
            "its loader or transform, in the thread that called it). Elsewhere, take a Generator "
            "from detaug.SeedTree(seed).generator(epoch, step)."
        )
    return _making.batch


def is_making() -> bool:
    """Return whether this thread is making a batch: global random states are seeded then."""
    return _making.batch is not None


@contextmanager
def making(batch: Current | None) -> Iterator[None]:
    """Let `current()` return `batch` within the block; None: no batch is being made."""
    # Blocks are nested: a sample's lies inside its batch's.
    outer = _making.batch
    _making.batch = batch
    try:
        yield
    finally:
        _making.batch = outer
