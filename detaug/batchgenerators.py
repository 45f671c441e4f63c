"""batchgenerators' three augmenters, with their names and signatures, and detaug's batches.

A program changes one import::

    from detaug.batchgenerators import NonDetMultiThreadedAugmenter

Each class is a `detaug.DeterministicAugmenter` and a subclass of the class that it replaces, so
that ``isinstance`` holds. batchgenerators' constructors are not called, and none of its processes,
threads and queues exist.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from batchgenerators.dataloading import multi_threaded_augmenter as stock_multi
from batchgenerators.dataloading import nondet_multi_threaded_augmenter as stock_nondet
from batchgenerators.dataloading import single_threaded_augmenter as stock_single

from detaug.augmenter.augmenter import Batch, DeterministicAugmenter
from detaug.engine import arguments
from detaug.pipeline.sources.base import is_batchgenerators

__all__ = ["MultiThreadedAugmenter", "NonDetMultiThreadedAugmenter", "SingleThreadedAugmenter"]

#: Attributes of batchgenerators' augmenters that hold their queues, processes and threads.
_MACHINERY = frozenset(
    {
        "_end_ctr",
        "_processes",
        "_queue",
        "_queue_ctr",
        "_queues",
        "abort_event",
        "pause_event",
        "pin_memory_queue",
        "pin_memory_thread",
        "results_loop_queue",
        "results_loop_thread",
    }
)


class _BatchgeneratorsAugmenter(DeterministicAugmenter[Batch]):
    """The common base of the three augmenters."""

    def __getattr__(self, name: str) -> NoReturn:
        class_name = type(self).__name__
        if name in _MACHINERY:
            raise AttributeError(
                f"{class_name} of detaug has no {name}: its queues, processes and threads are not "
                "batchgenerators'. aug.stats() says what its workers did, and aug._finish() ends "
                "them",
                name=name,
                obj=self,
            )
        raise AttributeError(
            f"{class_name!r} object has no attribute {name!r}", name=name, obj=self
        )

    def __del__(self) -> None:
        """Do nothing; a finalizer ends the workers.

        batchgenerators' method would use attributes that do not exist.
        """


class NonDetMultiThreadedAugmenter(
    _BatchgeneratorsAugmenter[Batch],
    stock_nondet.NonDetMultiThreadedAugmenter,  # type: ignore[misc]
):
    """batchgenerators' NonDetMultiThreadedAugmenter with seeded, ordered, crash-proof batches.

    It takes the arguments of `detaug.DeterministicAugmenter`, which begin with batchgenerators'
    own. The loader must not end. There are epochs only if you pass `batches_per_epoch`.

    Raises:
        ValueError: the loader is a batchgenerators DataLoader without ``infinite=True``.
    """

    @property
    def initialized(self) -> bool:
        """True if the workers are running."""
        return self._engine is not None

    def _inspect_pipeline(self) -> None:
        loader = self._data_loader
        if is_batchgenerators(loader, "DataLoader") and not loader.infinite:
            raise ValueError(
                "NonDetMultiThreadedAugmenter takes loaders without an end, and "
                f"{type(loader).__name__} has infinite=False: pass infinite=True, or use "
                "MultiThreadedAugmenter, which goes through the data once an epoch"
            )
        super()._inspect_pipeline()

    def __next__(self) -> Batch:
        """Return the batch that is due.

        Raises:
            RuntimeError: the loader has ended.
            StopIteration: `batches_per_epoch` was passed, and the epoch has ended.
        """
        try:
            return super().__next__()
        except StopIteration:
            # Then the user asked for epochs, and their ends are none of the loader's.
            if self.batches_per_epoch is not None:
                raise
            raise RuntimeError(
                "the loader has ended, and NonDetMultiThreadedAugmenter takes loaders without an "
                "end: use MultiThreadedAugmenter, whose for loop runs once through the data, or "
                "pass batches_per_epoch=..."
            ) from None


class MultiThreadedAugmenter(
    _BatchgeneratorsAugmenter[Batch],
    stock_multi.MultiThreadedAugmenter,  # type: ignore[misc]
):
    """batchgenerators' MultiThreadedAugmenter with seeded, crash-proof batches.

    Args:
        data_loader, transform, num_processes, seeds, pin_memory, wait_time: as in
            `detaug.DeterministicAugmenter`.
        num_cached_per_queue: number of batches kept ready for each process, in addition to the one
            that it works on.
        timeout: ignored; accepted for compatibility. To limit the time of a batch, pass
            ``executor=LocalProcesses(stall_timeout=seconds)``.
        **options: further arguments of `detaug.DeterministicAugmenter`.
    """

    def __init__(
        self,
        data_loader: Any,
        transform: Callable[..., Any] | None,
        num_processes: int,
        num_cached_per_queue: int = 2,
        seeds: Sequence[int | None] | None = None,
        pin_memory: bool = False,
        timeout: float = 10,
        wait_time: float = 0.02,
        **options: Any,
    ) -> None:
        self.timeout = timeout
        self._num_cached_per_queue = arguments.count("num_cached_per_queue", num_cached_per_queue)
        super().__init__(
            data_loader,
            transform,
            num_processes,
            seeds=seeds,
            pin_memory=pin_memory,
            wait_time=wait_time,
            **options,
        )

    @property
    def was_initialized(self) -> bool:
        """True if the workers are running."""
        return self._engine is not None

    @property
    def num_cached_per_queue(self) -> int:
        """The number of batches kept ready for each process, in addition to the one it works on."""
        return self._num_cached_per_queue

    @num_cached_per_queue.setter
    def num_cached_per_queue(self, value: int) -> None:
        self._refuse_if_settled("num_cached_per_queue")
        self._num_cached_per_queue = arguments.count("num_cached_per_queue", value)

    @property
    def num_cached(self) -> int:
        """The number of batches kept ready for all processes together."""
        return self._num_cached_per_queue * self.num_processes

    @num_cached.setter
    def num_cached(self, value: int) -> None:
        raise AttributeError(
            "MultiThreadedAugmenter keeps num_cached_per_queue batches for each process: set that "
            f"one, not num_cached={value!r}"
        )


class SingleThreadedAugmenter(
    _BatchgeneratorsAugmenter[Batch],
    stock_single.SingleThreadedAugmenter,  # type: ignore[misc]
):
    """batchgenerators' SingleThreadedAugmenter with seeded batches.

    This process makes each batch when it is requested.

    Args:
        data_loader, transform: as in `detaug.DeterministicAugmenter`.
        **options: further arguments of `detaug.DeterministicAugmenter`.
    """

    def __init__(
        self, data_loader: Any, transform: Callable[..., Any] | None, **options: Any
    ) -> None:
        # No workers, as in batchgenerators.
        super().__init__(data_loader, transform, 0, **options)

    @property
    def data_loader(self) -> Any:
        """The loader, as it was passed or set."""
        return self.generator

    @data_loader.setter
    def data_loader(self, value: Any) -> None:
        self.generator = value
