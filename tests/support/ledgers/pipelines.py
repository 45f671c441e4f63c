"""Factories for `detaug verify --against`."""

from __future__ import annotations

from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

from detaug import DeterministicAugmenter
from tests.support.ledgers.runs import Draws, augmenter


class Sums(SlimDataLoaderBase):
    """A stateful loader: each batch holds the sum of the stream's draws so far."""

    def __init__(self) -> None:
        super().__init__(None, 1)
        self.total = 0.0

    def generate_train_batch(self) -> dict[str, Any]:
        self.total += float(np.random.standard_normal())
        return {"total": self.total}


def sums() -> tuple[Any, None]:
    return Sums(), None


def plain() -> tuple[Any, None]:
    """Return the pipeline of `tests.support.ledgers.runs`."""
    return Draws(), None


def as_augmenter() -> DeterministicAugmenter:
    """Return the same pipeline in an augmenter."""
    return augmenter(None)


def failing() -> tuple[Any, None]:
    """Return the same pipeline with a loader that fails at step 1."""
    return Draws(fails_at=(1,)), None


def another() -> tuple[Any, None]:
    """Return a pipeline with another declared parameter."""
    return Draws(2.0), None


class _Changed(Draws):
    """A loader whose batches hold other numbers."""

    def generate_train_batch(self) -> dict[str, Any]:
        batch = super().generate_train_batch()
        return {**batch, "data": batch["data"] + 1}


class _Lost(Draws):
    """A loader whose file no longer exists."""

    def generate_train_batch(self) -> dict[str, Any]:
        raise FileNotFoundError(2, "No such file or directory", "case_07.b2nd")


# With the same names the pipeline has the same description, so only the batches tell the change.
_Changed.__module__ = Draws.__module__
_Changed.__qualname__ = Draws.__qualname__
_Lost.__module__ = Draws.__module__
_Lost.__qualname__ = Draws.__qualname__


def changed_data() -> tuple[Any, None]:
    """Return a pipeline with the same description whose data have changed."""
    return _Changed(), None


def lost_data() -> tuple[Any, None]:
    """Return a pipeline with the same description whose data cannot be read any more."""
    return _Lost(), None


def three_batches() -> DeterministicAugmenter:
    """Return an augmenter of a loader that ends after three batches."""
    return augmenter(None, loader=lambda: iter(range(3)), num_streams=1)
