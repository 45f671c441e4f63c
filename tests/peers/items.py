"""What all pipelines of this folder start from: one image, so that samples differ by what was drawn
for them alone.
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

#: Items of a data set.
ITEMS = 9


@dataclass(frozen=True)
class Example:
    """A pipeline of somebody's library.

    Attributes:
        name: what it shows.
        build: called as ``build(folder, **options)``; gives an augmenter with these options.
        indices: whether its batches name the items that they are made of.
        checked: whether workers' batches are checked as well, which imports the library in a fresh
            interpreter.
    """

    name: str
    build: Callable[..., DeterministicAugmenter]
    indices: bool = True
    checked: bool = False

    def __str__(self) -> str:
        return self.name


def image(*shape: int) -> Any:
    """The same float32 numbers in 0 ... 1 at every call."""
    return np.random.default_rng(12).random(shape, dtype=np.float32)


def note_load(folder: Path | str, index: int) -> None:
    """Leave a note of who loaded what: workers are found by it, and caches are seen to be caches."""
    (Path(folder) / f"{index}-{os.getpid()}-{time.monotonic_ns()}.load").touch()


def loads(folder: Path) -> list[tuple[int, int]]:
    """(item, process) of every load so far."""
    notes = [note.name.split("-") for note in folder.glob("*.load")]
    return [(int(index), int(process)) for index, process, _ in notes]


class Blank:
    """A loader that gives the same batch for ever."""

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
    """A user's data set: loads, transforms.

    Args:
        folder: where loads are noted.
        shape: of an image.
        transform: image → image.
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
        return {"image": np.ascontiguousarray(self.transform(image(*self.shape))), "index": index}


def of_images(
    shape: tuple[int, ...], make: Callable[[], Callable[[Any], Any]]
) -> Callable[..., DeterministicAugmenter]:
    """How to build batches of two, from `Images` with the transform that `make` gives."""

    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        return DeterministicAugmenter.from_dataset(Images(folder, shape, make()), 2, **options)

    return build


def from_blank(
    folder: Path, shape: tuple[int, ...], transform: Callable[..., Any], **options: Any
) -> DeterministicAugmenter:
    """Five batches an epoch, of two streams, to which a transform of whole batches is applied."""
    settings = {"batches_per_epoch": 5, "num_streams": 2, **options}
    return DeterministicAugmenter(
        Blank(folder, shape), transform, settings.pop("num_processes"), **settings
    )
