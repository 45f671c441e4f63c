"""Collects what nnU-Net's `get_dataloaders` wants to build, without building it.

The method names its augmenter classes by the globals of its module, draws a batch from each augmenter and
discards it. Trainers override it. So the trainer's own method runs with these globals replaced: all arguments are
nnU-Net's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from detaug.nnunet.compatibility import AUGMENTERS, MAKES_LOADERS


def batches_kept(num_cached: int) -> int:
    """How many batches to keep ready where nnU-Net asks for `num_cached`.

    Its augmenter keeps as many in each of two queues. Half as many again are enough for a training not to wait when several
    costly batches (rotated and scaled ones cost five times as much as others) follow one another.
    """
    return num_cached + num_cached // 2


@dataclass
class AugmenterRequest:
    """A requested augmenter. Drawing from it gives nothing, so that no batch is discarded.

    Attributes:
        data_loader: what makes raw batches.
        transform: applied to them, or None.
        num_processes: worker processes; 0: none.
        num_cached: batches kept ready.
        pin_memory: for a GPU.
    """

    data_loader: Any
    transform: Any = None
    num_processes: int = 0
    num_cached: int = 2
    seeds: Any = None
    pin_memory: bool = False
    wait_time: float = 0.02

    @property
    def generator(self) -> Any:
        """The loader, by the name that batchgenerators' augmenters have for it."""
        return self.data_loader

    def __iter__(self) -> AugmenterRequest:
        return self

    def __next__(self) -> None:
        return None


@contextlib.contextmanager
def requests_instead_of_augmenters(trainer: type) -> Iterator[None]:
    """Inside, every definition of `get_dataloaders` among a trainer's bases gets `AugmenterRequest` objects."""
    methods = [vars(base).get(MAKES_LOADERS) for base in trainer.__mro__]
    found = [getattr(getattr(each, "__wrapped__", each), "__globals__", {}) for each in methods]
    before = [(each, name, each[name]) for each in found for name in AUGMENTERS if name in each]
    for namespace, name, _ in before:
        namespace[name] = AugmenterRequest
    try:
        yield
    finally:
        for namespace, name, augmenter in before:
            namespace[name] = augmenter
