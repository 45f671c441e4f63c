"""What stands in place of torch's and nnU-Net's own functions and classes while a method of nnU-Net's runs."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel

from detaug.nnunet.compatibility import AUGMENTERS, MAKES_LOADERS, replaced


@contextmanager
def saves_through(write: Callable[[Any, Any], None]) -> Iterator[None]:
    """Inside, what this thread hands to `torch.save` goes to ``write(object, file)``.

    nnU-Net's `save_checkpoint` decides what goes into a checkpoint, and subclasses of its trainer add to that: so their
    method runs, and only the writing is ours.
    """
    original, thread = torch.save, threading.get_ident()

    def save(obj: Any, f: Any, *arguments: Any, **options: Any) -> None:
        if threading.get_ident() != thread:
            original(obj, f, *arguments, **options)
            return
        with replaced(torch, "save", original):
            write(obj, f)

    with replaced(torch, "save", save):
        yield


@contextmanager
def buckets_stay() -> Iterator[None]:
    """Inside, `DistributedDataParallel` is made with ``find_unused_parameters=True`` where the caller does not say.

    Otherwise it rebuilds its gradient buckets after a process's first step. With three or more ranks the place of a
    gradient in its bucket decides in which order the ranks' gradients are summed, so that the first step of a process that
    resumed a training would round in another way than the same step of one that ran straight through.
    """
    original = DistributedDataParallel.__init__
    signature = inspect.signature(original)

    def made(self: Any, *arguments: Any, **options: Any) -> None:
        if "find_unused_parameters" not in signature.bind(self, *arguments, **options).arguments:
            options["find_unused_parameters"] = True
        original(self, *arguments, **options)

    with replaced(DistributedDataParallel, "__init__", made):
        yield


@dataclass
class AugmenterRequest:
    """An augmenter as nnU-Net asks for it. Drawing from it gives nothing, so that no batch is discarded."""

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


@contextmanager
def requests_instead_of_augmenters(trainer: type) -> Iterator[None]:
    """Inside, every definition of `get_dataloaders` among a trainer's bases gets `AugmenterRequest` objects.

    The method names its augmenter classes by the globals of its module, draws a batch from each augmenter and discards it.
    Trainers override it. So the trainer's own method runs with these globals replaced: all arguments are nnU-Net's own.
    """
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
