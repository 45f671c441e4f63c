"""Factories for `detaug check` and `detaug replay`."""

from __future__ import annotations

from typing import Any

from detaug import DeterministicAugmenter
from tests.support.ledgers.runs import Draws, augmenter


def plain() -> tuple[Any, None]:
    """The pipeline of `tests.support.ledgers.runs`."""
    return Draws(), None


def as_augmenter() -> DeterministicAugmenter:
    return augmenter(None)


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


def raises() -> tuple[Any, None]:
    raise RuntimeError("no data set here")


def nothing() -> None:
    """It is no pipeline."""
