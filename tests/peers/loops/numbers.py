"""Loaders made by `aug.loader()` whose batches show which samples they hold."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import chain
from typing import Any

from detaug import DeterministicAugmenter
from detaug.augmenter.loader import AugmenterLoader
from tests.support.numbers import Numbers, Seen, seen


def augmenter(
    num_processes: int = 0, batch_size: int = 2, **options: Any
) -> DeterministicAugmenter:
    """Return an augmenter of `Numbers`: by default six batches in an epoch."""
    options.setdefault("seed", 3)
    return DeterministicAugmenter.from_dataset(
        Numbers(), batch_size, num_processes=num_processes, **options
    )


def loader(num_processes: int = 0, **options: Any) -> AugmenterLoader:
    """Return the loader of an `augmenter`."""
    return augmenter(num_processes, **options).loader()


def epochs(count: int, **options: Any) -> list[list[Seen]]:
    """Return the samples of every batch that an augmenter gives to plain loops, by epoch."""
    with augmenter(**options) as batches:
        return [seen(batches) for _ in range(count)]


@cache
def reference() -> list[list[Seen]]:
    """Return the samples of every batch in the first five epochs.

    A test must not call it while its module is imported: no batch is made meanwhile.
    """
    return epochs(5)


def flattened(epochs_of_a_run: Iterable[list[Seen]]) -> list[Seen]:
    """Return the batches of all epochs in one list."""
    return list(chain.from_iterable(epochs_of_a_run))
