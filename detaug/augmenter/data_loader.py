"""`detaug.DataLoader`: torch's DataLoader, argument for argument, whose batches are an augmenter's.

DataLoader(dataset, ...)     torch's own constructor checks the arguments
    │
Settings                     the arguments as a value (`loader_settings`)
    │
LazyAugmenter                the augmenter, made on first use (`lazy_augmenter`)
    │
Passes                       one epoch for each iter() (`passes`)
Batches, MapView, Collate    read by libraries that make another loader (`batch_keys`)
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch.utils.data import DataLoader as TorchDataLoader
from torch.utils.data import Sampler

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.augmenter.batch_keys import (
    Accompanying,
    Batches,
    Collate,
    EpochSampler,
    InOrder,
    IterableView,
    MapView,
    Shared,
    Shuffled,
    SizedIterableView,
    unwrapped,
)
from detaug.augmenter.lazy_augmenter import LazyAugmenter
from detaug.augmenter.loader_settings import (
    BATCH_SAMPLER,
    IN_ORDER,
    ITERABLE,
    SAMPLER,
    SHUFFLED,
    Settings,
    order_of,
    wraps_batches,
)
from detaug.augmenter.reading_ahead import is_read_ahead
from detaug.engine import arguments
from detaug.engine.arguments import Check, Skip
from detaug.engine.executor import Executor

logger = logging.getLogger("detaug")

Item = TypeVar("Item", covariant=True)

#: Attributes that torch reads when a pass begins. They may be set until the first pass begins.
_SETTABLE = frozenset(
    {
        "collate_fn",
        "generator",
        "multiprocessing_context",
        "num_workers",
        "pin_memory",
        "prefetch_factor",
        "timeout",
        "worker_init_fn",
    }
)
#: Attributes that do not show the user's arguments: a loader that a library makes of this one's
#: attributes must not start workers of its own.
_WITHOUT_WORKERS = {
    "num_workers": 0,
    "prefetch_factor": None,
    "timeout": 0,
    "persistent_workers": False,
}


class DataLoader(TorchDataLoader[Item]):
    """torch's DataLoader with seeded, ordered batches that no number of workers changes.

    Each `iter()` is one epoch: the first, then the second, and so on. A pass that is left early
    does not continue. Workers start with the first pass and live until `close`. The data set and
    the other objects are copied when the first pass begins.

    Args:
        dataset: map-style, or an IterableDataset. An IterableDataset sees `num_streams` workers,
            for any `num_workers`.
        batch_size, shuffle, sampler, batch_sampler, collate_fn, drop_last, pin_memory: as in torch.
            A sampler starts every epoch as you passed it, with its generators seeded. With a
            DistributedSampler, ranks share the batches; its ``shuffle`` and ``drop_last`` apply,
            and its ``set_epoch`` names the epoch.
        num_workers: number of worker processes; 0: this process makes every batch. The attribute of
            this name is always 0, so that loaders made of this one's attributes start no workers.
        timeout: kill a worker that has been making one batch for this many seconds; another worker
            makes the batch. 0: never.
        worker_init_fn: called with the worker's number in every process that makes batches. Seeds
            that it sets have no effect.
        multiprocessing_context: a start method, or a context of `multiprocessing`.
        generator: its ``initial_seed()`` is the seed.
        prefetch_factor: number of batches kept ready for each worker; None: 2.
        persistent_workers: ignored; workers are always persistent.
        pin_memory_device: ignored, as in torch; memory is pinned for the current accelerator.
        in_order: must be True.
        seed: a non-negative integer or a list of them. None, without a generator: the environment
            variable ``DETAUG_SEED``, or if that is not set, a seed drawn from torch's default
            generator (so that ``torch.manual_seed`` repeats a run). A drawn seed is logged and
            saved in the state; if ranks share batches, all use the seed that rank 0 drew.
        name: the branch of the seed tree, e.g. "train". None: one branch for shuffled loaders,
            another for ordered ones.
        epoch: the epoch of every pass, for a validation that is the same every time. None: each
            pass is the next epoch.
        shard: ranks share the batches, as with a DistributedSampler: rank r of R gets steps r,
            r + R, ... The last round is filled with the epoch's first batches, or left out with
            `drop_last`.
        num_streams: number of copies of an IterableDataset that share the work. Each copy sees its
            number in `torch.utils.data.get_worker_info()`. None: 1. It changes the batches.
        transform: applied to the collated batch.
        keep, check, on_error, ledger, executor: as in `detaug.DeterministicAugmenter`.

    Raises:
        TypeError, ValueError: an argument is invalid, for torch or for one of the reasons above.
    """

    _lazy: LazyAugmenter
    #: Whether this loader reads another one's batches by key, in the order of a library's own batch
    #: sampler. Ignite's DeterministicEngine makes such loaders.
    _reads_keys = False

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | Sequence[int] | None = None,
        name: str | None = None,
        epoch: int | None = None,
        shard: bool = False,
        num_streams: int | None = None,
        transform: Callable[..., Any] | None = None,
        keep: Sequence[str] = (),
        check: Check | int | bool = True,
        on_error: str | Skip = "raise",
        ledger: str | os.PathLike[str] | None = None,
        executor: Executor | None = None,
    ) -> None:
        # A library that copies this loader passes the loader's own attributes as arguments.
        dataset = unwrapped(dataset)
        original: LazyAugmenter | None = None
        if isinstance(collate_fn, Collate):
            # The attribute of another loader: a library is making a copy of that loader.
            if isinstance(collate_fn.stream, LazyAugmenter):
                original = collate_fn.stream
            collate_fn = collate_fn.function
        # Here torch checks its own arguments, and raises the errors that its users know.
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        # A library's batch sampler around this class's: it chooses the batches and their order.
        if original is not None and wraps_batches(batch_sampler):
            self._set_attributes_of_rebuilt(original)
            return
        settings = Settings(
            dataset=dataset,
            order=order_of(dataset, batch_size, shuffle, sampler, batch_sampler, drop_last),
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            seed=seed,
            name=None if name is None else arguments.text("name", name),
            epoch=None if epoch is None else arguments.epoch(epoch),
            shard=_flag("shard", shard),
            num_streams=arguments.optional_positive("num_streams", num_streams),
            transform=arguments.transform(transform),
            keep=keep,
            check=Check.of(check),
            on_error=Skip.of(on_error),
            ledger=ledger,
            executor=None if executor is None else arguments.executor(executor),
        )
        if original is not None:
            settings = _merged(settings, original.settings)
        _check_settings(settings, in_order)
        self._set_attributes(settings)
        if original is not None and original.epochs.rest is not None:
            # The user loaded a state before a library made this copy.
            self.load_state_dict(original.state_dict())

    def _set_attributes_of_rebuilt(self, other: LazyAugmenter) -> None:
        """Set the attributes of a loader that reads another loader's batches by key.

        torch's own iteration then reads them in the order of the batch sampler.
        """
        attributes = self.__dict__
        attributes.update(_WITHOUT_WORKERS)
        attributes["_lazy"] = other
        attributes["_reads_keys"] = True
        attributes["dataset"] = MapView(other.settings.dataset, other)
        attributes["collate_fn"] = Collate(other.settings.collate_fn, other)

    def _set_attributes(self, settings: Settings) -> None:
        """Set the attributes that libraries read."""
        lazy = LazyAugmenter(settings)
        order = settings.order
        # Libraries build a loader without workers from these attributes, and torch refuses a
        # context then.
        self.multiprocessing_context = None
        # Not by setattr: torch forbids it after its constructor, and Lightning records it.
        attributes = self.__dict__
        attributes.update(_WITHOUT_WORKERS)
        attributes["_lazy"] = lazy
        attributes["collate_fn"] = Collate(settings.collate_fn, lazy)
        if order.kind == ITERABLE:
            # By its class, as `len` looks it up.
            is_sized = hasattr(type(settings.dataset), "__len__")
            view_class = SizedIterableView if is_sized else IterableView
            attributes["dataset"] = view_class(settings.dataset, lazy)
            return
        view = MapView(settings.dataset, lazy)
        sampler = _epoch_sampler(settings, lazy, view)
        attributes["dataset"] = view
        attributes["batch_size"] = order.batch_size
        attributes["drop_last"] = order.drop_last
        attributes["batch_sampler"] = _batch_sampler(settings, sampler)
        # Libraries call its `set_epoch`, and decide by its class whether to replace it.
        if order.distributed is not None:
            attributes["sampler"] = order.distributed
        elif order.kind == SAMPLER and not settings.shard and not settings.has_single_items:
            attributes["sampler"] = order.indices
        else:
            attributes["sampler"] = sampler

    def __setattr__(self, attr: str, value: Any) -> None:
        lazy: LazyAugmenter | None = self.__dict__.get("_lazy")
        if lazy is None or attr not in _SETTABLE:
            super().__setattr__(attr, value)
            return
        if attr == "worker_init_fn" and lazy.is_made:
            # No error: Lightning's seed_everything(workers=True) sets a function that only seeds,
            # and the user may have read a batch before.
            logger.warning("worker_init_fn has no effect: this loader's workers have started")
            return
        # First: it raises if the value comes too late, and nothing is shown that has no effect.
        lazy.set(attr, value)
        if attr == "collate_fn":
            self.__dict__["collate_fn"] = Collate(value, lazy)
        elif attr not in _WITHOUT_WORKERS and attr != "multiprocessing_context":
            self.__dict__[attr] = value

    def __iter__(self) -> Iterator[Item]:  # type: ignore[override]
        """Return an iterator over the next epoch."""
        if self._reads_keys:
            return super().__iter__()
        if self._is_empty():
            return self._lazy.empty_pass()
        return self._lazy.new_pass(is_read_ahead())

    def _is_empty(self) -> bool:
        """Return whether an epoch has no batch, and log a warning if so."""
        settings = self._lazy.settings
        if settings.is_iterable or settings.num_batches() > 0:
            return False
        logger.warning(
            "a loader has no batches: %d samples are too few for batch_size=%s and drop_last=%s",
            len(settings.dataset),
            settings.order.batch_size,
            settings.order.drop_last,
        )
        return True

    def __len__(self) -> int:
        """Return this rank's number of batches in a whole epoch.

        The number is the same after `load_state_dict`, when only the rest of an epoch is left.

        Raises:
            TypeError: the IterableDataset has no length.
        """
        if self._reads_keys:
            return super().__len__()
        return self._lazy.length()

    @property
    def augmenter(self) -> DeterministicAugmenter[Item]:
        """The augmenter that makes the batches.

        It is made on first use. From then on arguments cannot be changed.
        """
        return self._lazy.augmenter()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch of the next pass; if it has been read already, the pass is the next one.

        Directly after `load_state_dict`, with the epoch in which the state was saved, the next pass
        is the rest of that epoch.
        """
        self._lazy.epochs.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return the loop's position, after the last batch that it got, as integers and strings.

        Raises:
            RuntimeError: another DataLoader, made of this one by Accelerate's prepare for example,
                reads its batches.
        """
        return self._lazy.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, with any number of workers and ranks.

        Raises:
            StateMismatch: (a ValueError) it belongs to another pipeline or seed. The message says
                what differs.
            TypeError, ValueError: it is not the state of a loader.
        """
        self._lazy.load_state_dict(state)

    def replay(self, epoch: int, step: int) -> Item:
        """Return a batch that this process makes for this call, with the same bytes.

        See `detaug.DeterministicAugmenter.replay`.
        """
        return self.augmenter.replay(epoch, step)

    def stats(self) -> dict[str, Any]:
        """Return counters of this run; see `detaug.DeterministicAugmenter.stats`."""
        return self.augmenter.stats()

    def close(self) -> None:
        """End the workers. Batches that you still hold stay valid."""
        self._lazy.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        # The copy has workers of its own, and continues where this loader stands.
        lazy = self._lazy
        state = lazy.state_dict() if lazy.is_made else None
        own = vars(DataLoader(()))
        # Those that the user or a subclass has set; they may refer to this loader.
        attributes = {name: value for name, value in vars(self).items() if name not in own}
        return _restored, (type(self), lazy.settings.arguments(), state), attributes


def _restored(
    loader_class: type[DataLoader[Any]], options: dict[str, Any], state: dict[str, Any] | None
) -> DataLoader[Any]:
    """Return a loader that was pickled or copied."""
    loader = loader_class.__new__(loader_class)
    # Not by the class: the constructor of a subclass may have other arguments.
    DataLoader.__init__(loader, **options)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def _epoch_sampler(settings: Settings, lazy: LazyAugmenter, view: MapView) -> EpochSampler:
    """Return the sampler of keys whose class tells libraries how the loader orders its samples."""
    kind = settings.order.kind
    if settings.shard:
        return Shared(lazy, view, shuffle=kind == SHUFFLED)
    if kind == SHUFFLED:
        return Shuffled(lazy, view, settings.generator)
    if kind == SAMPLER:
        return EpochSampler(lazy, settings.order.indices)
    return InOrder(lazy, view)


def _batch_sampler(settings: Settings, sampler: EpochSampler) -> Any:
    """Return the loader's attribute ``batch_sampler``; None if items are batches by themselves."""
    order = settings.order
    if settings.has_single_items:
        return None
    if order.observer is not None:
        # Lightning has no public way to the batch sampler inside its wrapper.
        order.observer._batch_sampler.sampler = Accompanying(sampler.stream, sampler.data_source)
        return order.observer
    custom = order.indices if order.kind == BATCH_SAMPLER else None
    if isinstance(sampler, Shuffled):
        # Accelerate would replace a RandomSampler here by a seeded one, and set the epoch of that
        # one only.
        sampler = EpochSampler(sampler.stream, sampler.data_source)
    return Batches(sampler, order.batch_size, order.drop_last, custom)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def _check_settings(settings: Settings, in_order: bool) -> None:
    """Raise a ValueError if an argument is not supported, or excludes another one."""
    if not in_order:
        raise ValueError(
            "in_order=False lets the workers' timing decide which batch comes next, but detaug's "
            "batches come in one fixed order: leave in_order out"
        )
    if settings.generator is not None and settings.seed is not None:
        raise ValueError(
            "generator and seed both set the seed (a generator by its initial_seed()): pass only "
            "one of them"
        )
    if settings.shard and settings.is_iterable:
        raise ValueError(
            "an IterableDataset decides itself what each rank reads (it can ask "
            "torch.distributed.get_rank()), so that shard=True has no effect: leave it out, or "
            "pass a map-style data set"
        )
    if settings.timeout and not settings.num_workers:
        raise ValueError(
            f"timeout={settings.timeout} has no effect with num_workers=0: no other process can "
            "end a batch that stalls"
        )
    if settings.executor is not None and (settings.timeout or settings.multiprocessing_context):
        raise ValueError(
            "timeout and multiprocessing_context configure local workers, and so does executor=: "
            "pass only executor=LocalProcesses(start_method=..., stall_timeout=...)"
        )


#: Arguments, and their defaults, that a loader made of another one's attributes inherits if the
#: library does not pass them.
_INHERITED: dict[str, Any] = {
    "num_workers": 0,
    "timeout": 0,
    "multiprocessing_context": None,
    "generator": None,
    "prefetch_factor": None,
    "seed": None,
    "name": None,
    "epoch": None,
    "shard": False,
    "num_streams": None,
    "transform": None,
    "keep": (),
    "check": Check(),
    "on_error": "raise",
    "ledger": None,
    "executor": None,
}


def _merged(settings: Settings, other: Settings) -> Settings:
    """Return the settings of a loader that a library makes of another one's attributes.

    Args:
        settings: from the arguments that the library passed.
        other: of the loader whose attributes these are.
    """
    changes: dict[str, Any] = {}
    for name, default in _INHERITED.items():
        # A library passes the arguments that it knows, and leaves detaug's own out.
        if getattr(settings, name) == default:
            changes[name] = getattr(other, name)
    order = settings.order
    hides_batch_sampler = other.order.kind == BATCH_SAMPLER
    hides_shuffling = other.order.kind == SHUFFLED and order.kind == IN_ORDER
    if order.distributed is not None and (hides_batch_sampler or hides_shuffling):
        # Lightning passed the sampler, and looked only at the class of this loader's batch sampler.
        changes["order"] = replace(
            other.order, distributed=order.distributed, observer=order.observer
        )
    return replace(settings, **changes)
