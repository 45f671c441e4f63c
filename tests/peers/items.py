"""Loaders and data sets of one image, for pipelines of other libraries.

Samples differ only by what was drawn for them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug import DeterministicAugmenter

#: Length of a data set.
ITEMS = 9


@dataclass(frozen=True)
class Example:
    """A pipeline of another library.

    Attributes:
        name: what it shows.
        build: called as ``build(folder, **options)``; returns an augmenter with these options.
        indices: whether its batches have the indices of their items.
        checked: whether workers' batches are rechecked as well, for which a new interpreter imports
            the library.
    """

    name: str
    build: Callable[..., DeterministicAugmenter]
    indices: bool = True
    checked: bool = False

    def __str__(self) -> str:
        return self.name


def image(*shape: int) -> Any:
    """Return an image of float32 in 0 ... 1, the same at every call."""
    return np.random.default_rng(12).random(shape, dtype=np.float32)


def note_load(folder: Path | str, index: int) -> None:
    """Record that this process has loaded an item, as an empty file."""
    file = Path(folder, f"{index}-{os.getpid()}-{time.monotonic_ns()}.load")
    file.touch()


def loads(folder: Path) -> list[tuple[int, int]]:
    """Return (index, process id) of every load so far."""
    records = [file.name.split("-") for file in folder.glob("*.load")]
    return [(int(index), int(pid)) for index, pid, _ in records]


class Blank:
    """An endless loader of equal batches.

    Args:
        folder: where loads are recorded.
        shape: of a batch.
        key: of the array.
    """

    def __init__(self, folder: Path | str, shape: tuple[int, ...], key: str = "image") -> None:
        self.folder = str(folder)
        self.shape = shape
        self.key = key

    def __iter__(self) -> Blank:
        return self

    def __next__(self) -> dict[str, Any]:
        note_load(self.folder, 0)
        return {self.key: image(*self.shape)}


class Images(torch.utils.data.Dataset[Any]):
    """A user's data set, which loads an image and transforms it.

    Args:
        folder: where loads are recorded.
        shape: of an image.
        transform: image -> image.
    """

    def __init__(
        self, folder: Path | str, shape: tuple[int, ...], transform: Callable[[Any], Any]
    ) -> None:
        self.folder = str(folder)
        self.shape = shape
        self.transform = transform

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> dict[str, Any]:
        note_load(self.folder, index)
        transformed = self.transform(image(*self.shape))
        return {"image": np.ascontiguousarray(transformed), "index": index}


def of_images(
    shape: tuple[int, ...], make_transform: Callable[[], Callable[[Any], Any]]
) -> Callable[..., DeterministicAugmenter]:
    """Return the `build` of an example with batches of two items of `Images`.

    Args:
        shape: of an image.
        make_transform: returns the data set's transform.
    """

    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        dataset = Images(folder, shape, make_transform())
        return DeterministicAugmenter.from_dataset(dataset, 2, **options)

    return build


def from_blank(
    folder: Path, shape: tuple[int, ...], transform: Callable[..., Any], **options: Any
) -> DeterministicAugmenter:
    """Return an augmenter of `Blank` with five batches in an epoch and two streams.

    Args:
        folder: where loads are recorded.
        shape: of a batch.
        transform: of whole batches.
        options: of the augmenter.
    """
    num_processes = options.pop("num_processes")
    settings = {"batches_per_epoch": 5, "num_streams": 2, **options}
    return DeterministicAugmenter(Blank(folder, shape), transform, num_processes, **settings)
