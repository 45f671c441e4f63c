"""Factories for `detaug check` and `detaug replay`."""

from __future__ import annotations

from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

from detaug import Check, DeterministicAugmenter
from detaug import transforms as t
from tests.support.ledgers.runs import Draws, augmenter


class Blobs(DataLoader):
    """Two bright balls with labels, as batchgenerators has batches."""

    def __init__(self) -> None:
        super().__init__(None, 2, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        axes = np.mgrid[-1:1:20j, -1:1:18j, -1:1:16j]
        ball = np.exp(-3 * (axes**2).sum(0))
        noise = 0.05 * np.random.standard_normal((2, 1, *ball.shape))
        return {
            "data": (ball + noise).astype(np.float32),
            "seg": np.stack([ball[None] > 0.4] * 2).astype(np.int16),
        }


def native() -> tuple[Any, Any]:
    return Blobs(), t.Compose(
        [
            t.RandomApply(t.GaussianNoise((0, 0.1)), 0.5),
            t.OneOf([t.Mirror((0, 1, 2)), t.InvertImage(1)]),
        ]
    )


class Sums(SlimDataLoaderBase):
    """Each batch of a stream holds the sum of its draws so far."""

    def __init__(self) -> None:
        super().__init__(None, 1)
        self.total = 0.0

    def generate_train_batch(self) -> dict[str, Any]:
        self.total += float(np.random.standard_normal())
        return {"total": self.total}


def sums() -> tuple[Any, None]:
    return Sums(), None


def plain() -> tuple[Any, None]:
    """The pipeline of `tests.support.ledgers.runs`."""
    return Draws(), None


def as_augmenter() -> DeterministicAugmenter:
    return augmenter(None)


def without_at() -> DeterministicAugmenter:
    return augmenter(None, check=Check(every=0, ignore=("at",)))


def failing() -> tuple[Any, None]:
    return Draws(fails_at=(1,)), None


def another() -> tuple[Any, None]:
    return Draws(2.0), None


class _Changed(Draws):
    """Its data are others."""

    def generate_train_batch(self) -> dict[str, Any]:
        batch = super().generate_train_batch()
        return {**batch, "data": batch["data"] + 1}


class _Lost(Draws):
    def generate_train_batch(self) -> dict[str, Any]:
        raise FileNotFoundError(2, "No such file or directory", "case_07.b2nd")


_Changed.__module__ = _Lost.__module__ = Draws.__module__
_Changed.__qualname__ = _Lost.__qualname__ = Draws.__qualname__


def changed_data() -> tuple[Any, None]:
    return _Changed(), None


def lost_data() -> tuple[Any, None]:
    return _Lost(), None
