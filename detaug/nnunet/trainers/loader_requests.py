"""Collects what nnU-Net's `get_dataloaders` wants to build, without building it.

The method names its augmenter classes by the globals of its module, draws a batch from each augmenter and
discards it. Trainers override it. So the trainer's own method runs with these globals replaced: all arguments are
nnU-Net's own.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from detaug.nnunet.compatibility import MAKES_LOADERS, ORDERED, SINGLE, UNORDERED


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


def _request_of_multi_threaded(
    data_loader: Any,
    transform: Any,
    num_processes: int,
    num_cached_per_queue: int = 2,
    seeds: Any = None,
    pin_memory: bool = False,
    **_: Any,
) -> AugmenterRequest:
    cached = num_cached_per_queue * num_processes
    return AugmenterRequest(data_loader, transform, num_processes, cached, seeds, pin_memory)


#: Names by which nnU-Net's modules know batchgenerators' augmenters, and what has their arguments here.
AUGMENTERS: dict[str, Callable[..., AugmenterRequest]] = {
    UNORDERED: AugmenterRequest,
    ORDERED: _request_of_multi_threaded,
    SINGLE: AugmenterRequest,
}


@contextlib.contextmanager
def requests_instead_of_augmenters(trainer: type, method: str = MAKES_LOADERS) -> Iterator[None]:
    """Inside, the trainer's `get_dataloaders` gets `AugmenterRequest` objects.

    Args:
        trainer: the class; every definition of the method among its bases is dealt with.
        method: the method's name.
    """
    with contextlib.ExitStack() as stack:
        for namespace in _namespaces(trainer, method):
            stack.enter_context(_replaced(namespace, AUGMENTERS))
        yield


def _namespaces(trainer: type, method: str) -> list[dict[str, Any]]:
    """The globals of every definition of the method."""
    found: list[dict[str, Any]] = []
    for base in trainer.__mro__:
        function = getattr(vars(base).get(method), "__wrapped__", vars(base).get(method))
        namespace = getattr(function, "__globals__", None)
        if namespace is not None and not any(namespace is each for each in found):
            found.append(namespace)
    return found


@contextlib.contextmanager
def _replaced(namespace: dict[str, Any], substitutes: Mapping[str, Any]) -> Iterator[None]:
    before = {name: namespace[name] for name in substitutes if name in namespace}
    namespace.update({name: substitutes[name] for name in before})
    try:
        yield
    finally:
        namespace.update(before)
