"""The batches below a branch of the seed tree, and `detaug.current()`: the one that is being made."""

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
    """Where in the seed tree a pipeline's batches are."""

    tree: SeedTree
    num_streams: int

    def line(self, epoch: int, step: int) -> str:
        """A batch's SeedSequence as a line of Python."""
        return f"{self.tree!r}.sequence({epoch}, {step}, num_streams={self.num_streams})"


class Current:
    """The batch (or the sample of a batch) that is being made.

    Attributes:
        epoch: which epoch.
        step: which batch of it, in the one global stream of all ranks.
        stream: which logical worker.
        turn: how many batches this worker made before it in the epoch.
        sample: which sample of the batch, where one is being made by itself; else None.
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
        """The SeedSequence of this batch, or of one sample of it."""
        number = self.sample if sample is None else sample
        key = (self.epoch, self.stream, self.turn) + (() if number is None else (number,))
        return np.random.SeedSequence(self.entropy, spawn_key=key)

    @property
    def entropy(self) -> tuple[int, ...]:
        """The four words of this seed branch, from which every child of it is made."""
        return self._branch.tree._entropy

    @property
    def generator(self) -> np.random.Generator:
        """The batch's (or the sample's) own Generator: one object for the whole batch, so draws
        follow each other.
        """
        if self._generator is None:
            self._generator = make_generator(self.sequence())
        return self._generator

    def next_sample_generator(self) -> np.random.Generator:
        """The Generator of the next sample: the n-th call in a batch gets sample child n."""
        if self.sample is not None:
            return self.generator
        number, self._calls = self._calls, self._calls + 1
        return make_generator(self.sequence(number))

    def of_sample(self, sample: int) -> Current:
        """The same batch, seen from one of its samples."""
        return Current(self._branch, self.epoch, self.step, sample)

    def empty(
        self, shape: SupportsIndex | Iterable[SupportsIndex], dtype: Any = np.float32
    ) -> np.ndarray[Any, Any]:
        """An array as `numpy.empty` makes it, for a large part of this batch: put into the batch it
        is not copied any more.

        In a worker it lies in the shared memory that the batch travels in; elsewhere it is an
        ordinary array. Its contents are undefined, so write all of it. It is for this batch: what a
        loader still holds of it when the batch is done is copied, as any other array is (so do
        generator functions, whose frames hold what they yielded last). A process that the loader
        forks meanwhile shares it: what one writes, the other sees.

        Args:
            shape: of the array; a number or several.
            dtype: of its elements.
        """
        return batch_memory.empty(shape, dtype)

    def __repr__(self) -> str:
        return f"<epoch {self.epoch}, step {self.step}, stream {self.stream}, sample {self.sample}>"


class _Making(threading.local):
    batch: Current | None = None


_making = _Making()


def current() -> Current:
    """The batch that is being made in this thread: `.generator`, `.epoch`, `.step`, `.stream`,
    `.sample`.

    Raises:
        RuntimeError: no batch is being made here.
    """
    if _making.batch is None:
        raise RuntimeError(
            "detaug.current() is known only while a DeterministicAugmenter makes a batch (inside "
            "its loader or "
            "transform, in the thread that called it). Elsewhere, take a Generator from "
            "detaug.SeedTree(seed).generator(epoch, step)."
        )
    return _making.batch


def is_making() -> bool:
    """Whether a batch is being made in this thread: global random states are then seeded."""
    return _making.batch is not None


@contextmanager
def making(batch: Current | None) -> Iterator[None]:
    """Inside, `current()` is `batch`; None: no batch is being made."""
    outer, _making.batch = _making.batch, batch
    try:
        yield
    finally:
        _making.batch = outer
