"""What stands in place of torch's and nnU-Net's own functions and classes while a method of nnU-Net's runs."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from traceback import walk_tb
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
def loads_everything() -> Iterator[None]:
    """Inside, this thread's `torch.load` takes any pickle unless it is told otherwise.

    nnU-Net's checkpoints hold NumPy's scalars. Its own `load_checkpoint` asks for ``weights_only=False``;
    ``nnUNetTrainer_warmup`` and those that inherit from it have forgotten to, and cannot be continued.
    """
    original, thread = torch.load, threading.get_ident()

    def load(*arguments: Any, **options: Any) -> Any:
        if threading.get_ident() == thread:
            options.setdefault("weights_only", False)
        return original(*arguments, **options)

    with replaced(torch, "load", load):
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


def batches_kept(num_cached: int) -> int:
    """How many batches to keep ready where nnU-Net asks for `num_cached`.

    Its augmenter keeps as many in each of two queues. Half as many again are enough for a training not to wait when several
    costly batches (rotated and scaled ones cost five times as much as others) follow one another.
    """
    return num_cached + num_cached // 2


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


class NamesCases:
    """`generate_train_batch` of a loader whose `indices` name cases, as nnU-Net's; its errors say at which case they came."""

    def __init__(self, loader: Any) -> None:
        self._loader, self._make = loader, loader.generate_train_batch

    def __call__(self) -> Any:
        try:
            return self._make()
        except Exception as error:
            names = set(map(str, self._loader.indices))
            for frame, _ in walk_tb(error.__traceback__):
                found = [each for each in frame.f_locals.values() if isinstance(each, str) and each in names]
                if found and frame.f_locals.get("self") is self._loader:
                    error.add_note(f"while a patch of case {found[-1]} was made")
                    break
            raise
