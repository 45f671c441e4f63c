"""`detaug.DataLoader`: torch's DataLoader, argument for argument, whose batches are an augmenter's.

DataLoader(dataset, ...)     its arguments are checked by torch's own constructor
    │
Settings                     what they say: `loader_settings`
    │
LazyAugmenter                the augmenter, once it is needed, and who reads it: `lazy_augmenter`
    │
Passes                       one epoch for every iter(): `detaug.augmenter.passes`
Batches, MapView, Collate    what libraries take out of a loader to make another one:
`detaug.augmenter.batch_keys`
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
from detaug.engine import arguments
from detaug.engine.arguments import Check, Skip
from detaug.engine.executor import Executor

logger = logging.getLogger("detaug")

Item = TypeVar("Item", covariant=True)

#: Attributes that torch reads when a pass begins. They may be set until the first one does.
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
#: Those that say nothing of the user's: a loader that a library makes of this one's attributes is
#: to start no workers.
_WITHOUT_WORKERS = {
    "num_workers": 0,
    "prefetch_factor": None,
    "timeout": 0,
    "persistent_workers": False,
}


class DataLoader(TorchDataLoader[Item]):
    """torch's DataLoader with seeded, ordered, crash-proof batches: the same for any number of
    workers.

    One `iter()` is one epoch, the next one every time; a pass that is left early is not gone on
    with. Workers start with the first pass and live until `close`. The objects are taken as they
    are then.

    Args:
        dataset: map-style, or an IterableDataset: that one sees as many workers as it has streams,
            whatever `num_workers`.
        batch_size, shuffle, sampler, batch_sampler, collate_fn, drop_last, pin_memory: as torch has
            them. A sampler starts every epoch as it was passed, with its generators seeded. A
            DistributedSampler has ranks share the batches; its ``shuffle`` and ``drop_last`` are
            taken, and its ``set_epoch`` is heard.
        num_workers: worker processes; 0 makes every batch in this process. The attribute of this
            name is 0, so that loaders made of this one's attributes start none.
        timeout: kill a worker that has been making one batch for so many seconds; another one makes
            it. 0: never.
        worker_init_fn: is called with the worker's number in every process that makes batches.
            Seeds that it sets have no effect.
        multiprocessing_context: a start method, or a context of `multiprocessing`.
        generator: its ``initial_seed()`` is the seed.
        prefetch_factor: so many batches are kept ready for each worker; None: 2.
        persistent_workers: they always are.
        pin_memory_device: as in torch, without effect: the current accelerator is meant.
        in_order: must be True.
        seed: a non-negative integer or a list of them. None, without a generator: ``DETAUG_SEED``
            from the environment, else one is drawn from torch's default generator (so that
            ``torch.manual_seed`` repeats a run), logged, and kept in the state; where ranks share
            batches it is rank 0's.
        name: the branch of the seed tree, e.g. "train". None: one for shuffled loaders, another for
            ordered ones.
        epoch: the epoch that every pass gives, for a validation that is the same every time. None:
            one after the other.
        shard: ranks share the batches, as with a DistributedSampler: rank r of R gets steps r, r +
            R, ... The last round is filled with the epoch's first batches, or left out with
            `drop_last`.
        num_streams: copies of an IterableDataset that share the work, each of which sees its number
            in `torch.utils.data.get_worker_info()`; None: 1. It is part of the result.
        transform: is applied to the collated batch.
        keep, check, on_error, ledger, executor: as for `detaug.DeterministicAugmenter`.

    Raises:
        TypeError, ValueError: an argument cannot be right, as torch sees it or for the reasons
            above.
    """

    _lazy: LazyAugmenter
    #: A library made it, with a batch sampler of its own around another loader's: Ignite's
    #: DeterministicEngine.
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
        dataset = unwrapped(dataset)
        remade: LazyAugmenter | None = None
        if isinstance(collate_fn, Collate):
            # It is a loader's attribute: a library makes another loader of one of these.
            if isinstance(collate_fn.stream, LazyAugmenter):
                remade = collate_fn.stream
            collate_fn = collate_fn.function
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
        if remade is not None and wraps_batches(batch_sampler):
            self._show_rebuilt(remade)
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
        if remade is not None:
            settings = _merged(settings, remade.settings)
        _check(settings, in_order)
        self._show(settings)
        if remade is not None and remade.epochs.rest is not None:
            # Somebody loaded a state, and gave the loader to a library that makes another one.
            self.load_state_dict(remade.state_dict())

    def _show_rebuilt(self, other: LazyAugmenter) -> None:
        """Read another loader's batches by their keys, in the order of the batch sampler: as
        torch's own loader does.
        """
        shown = self.__dict__
        shown.update(_WITHOUT_WORKERS)
        shown["_lazy"] = other
        shown["_reads_keys"] = True
        shown["dataset"] = MapView(other.settings.dataset, other)
        shown["collate_fn"] = Collate(other.settings.collate_fn, other)

    def _show(self, settings: Settings) -> None:
        """Set the attributes that libraries read."""
        lazy = LazyAugmenter(settings)
        order = settings.order
        self.multiprocessing_context = None
        # Not by setattr: torch forbids it after its constructor, and Lightning notes it.
        shown = self.__dict__
        shown.update(_WITHOUT_WORKERS)
        shown["_lazy"] = lazy
        shown["collate_fn"] = Collate(settings.collate_fn, lazy)
        if order.kind == ITERABLE:
            is_sized = hasattr(type(settings.dataset), "__len__")
            view = SizedIterableView if is_sized else IterableView
            shown["dataset"] = view(settings.dataset, lazy)
            return
        view_of_samples = MapView(settings.dataset, lazy)
        sampler = _epoch_sampler(settings, lazy, view_of_samples)
        shown["dataset"] = view_of_samples
        shown["batch_size"] = order.batch_size
        shown["drop_last"] = order.drop_last
        shown["batch_sampler"] = _batch_sampler(settings, sampler)
        if order.distributed is not None:
            shown["sampler"] = order.distributed
        elif order.kind == SAMPLER and not settings.shard and not settings.has_single_items:
            shown["sampler"] = order.indices
        else:
            shown["sampler"] = sampler

    def __setattr__(self, attr: str, value: Any) -> None:
        lazy: LazyAugmenter | None = self.__dict__.get("_lazy")
        if lazy is None or attr not in _SETTABLE:
            super().__setattr__(attr, value)
            return
        if attr == "worker_init_fn" and lazy.is_made:
            # Lightning's seed_everything(workers=True) sets one that seeds; a loop may have looked
            # at a batch before.
            logger.warning("worker_init_fn has no effect: this loader's workers have started")
            return
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
            return iter(())
        return self._lazy.new_pass()  # type: ignore[no-any-return]

    def _is_empty(self) -> bool:
        settings = self._lazy.settings
        if settings.is_iterable or settings.num_batches() > 0:
            return False
        logger.warning(
            "a loader has no batch: %d samples make none of batch_size=%s with drop_last=%s",
            len(settings.dataset),
            settings.order.batch_size,
            settings.order.drop_last,
        )
        return True

    def __len__(self) -> int:
        """Return this rank's batches of a whole epoch, also where the rest of one is left after
        `load_state_dict`.

        Raises:
            TypeError: the IterableDataset has no length.
        """
        return super().__len__() if self._reads_keys else self._lazy.length()

    @property
    def augmenter(self) -> DeterministicAugmenter[Item]:
        """The augmenter that makes the batches. It is made if there is none, and then arguments can
        change no more.
        """
        return self._lazy.augmenter()

    def set_epoch(self, epoch: int) -> None:
        """Name the next pass: it is this epoch, or where that one was given, the next one.

        Directly after `load_state_dict`, with the epoch in which the state was saved, it is the
        rest of that epoch.
        """
        self._lazy.epochs.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return where the loop stands: after the batch that it was given last. Plain integers and
        strings.

        Raises:
            RuntimeError: another DataLoader made of this one (by Accelerate's prepare, say) reads
                its batches.
        """
        return self._lazy.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called, with any number of workers and ranks.

        Raises:
            StateMismatch: (a ValueError) it belongs to another pipeline or seed; the message says
                what differs.
            TypeError, ValueError: it is no state of a loader.
        """
        self._lazy.load_state_dict(state)

    def replay(self, epoch: int, step: int) -> Item:
        """Make a batch again, in this process and with the same bytes; see
        `detaug.DeterministicAugmenter.replay`.
        """
        return self.augmenter.replay(epoch, step)

    def stats(self) -> dict[str, Any]:
        """Return what has happened so far; see `detaug.DeterministicAugmenter.stats`."""
        return self.augmenter.stats()

    def close(self) -> None:
        """End the workers. Batches that are still held stay valid."""
        self._lazy.close()

    def __reduce_ex__(self, protocol: Any) -> Any:
        lazy = self._lazy
        state = lazy.state_dict() if lazy.is_made else None
        return _restored, (type(self), lazy.settings.arguments(), state)


def _restored(
    kind: type[DataLoader[Any]], given: dict[str, Any], state: dict[str, Any] | None
) -> DataLoader[Any]:
    """Return a loader that was pickled or copied."""
    loader = kind(**given)
    if state is not None:
        loader.load_state_dict(state)
    return loader


def _epoch_sampler(settings: Settings, lazy: LazyAugmenter, samples: MapView) -> EpochSampler:
    kind = settings.order.kind
    if settings.shard:
        return Shared(lazy, samples, shuffle=kind == SHUFFLED)
    if kind == SHUFFLED:
        return Shuffled(lazy, samples, settings.generator)
    if kind == SAMPLER:
        return EpochSampler(lazy, settings.order.indices)
    return InOrder(lazy, samples)


def _batch_sampler(settings: Settings, sampler: EpochSampler) -> Any:
    order = settings.order
    if settings.has_single_items:
        return None
    if order.observer is not None:
        order.observer._batch_sampler.sampler = Accompanying(sampler.stream, sampler.data_source)
        return order.observer
    custom = order.indices if order.kind == BATCH_SAMPLER else None
    if isinstance(sampler, Shuffled):
        # Accelerate puts a seeded sampler in the place of a RandomSampler that it finds here, and
        # tells that one the epoch.
        sampler = EpochSampler(sampler.stream, sampler.data_source)
    return Batches(sampler, order.batch_size, order.drop_last, custom)


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{name} must be True or False, got {value!r}")
    return value


def _check(settings: Settings, in_order: bool) -> None:
    """TypeError, ValueError: arguments exclude each other, or cannot be had."""
    if not in_order:
        raise ValueError(
            "in_order=False lets the workers' timing say which batch comes next: batches come in "
            "one fixed order here. Leave "
            "in_order out"
        )
    if settings.generator is not None and settings.seed is not None:
        raise ValueError(
            "generator and seed both say the seed (a generator by its initial_seed()): pass one of "
            "them"
        )
    if settings.shard and settings.is_iterable:
        raise ValueError(
            "an IterableDataset says itself what each rank reads (it can ask "
            "torch.distributed.get_rank()), so that shard=True "
            "has no effect: leave it out, or pass a map-style data set"
        )
    if settings.timeout and not settings.num_workers:
        raise ValueError(
            f"timeout={settings.timeout} has no effect with num_workers=0: nobody could end a "
            "batch that stalls"
        )
    if settings.executor is not None and (settings.timeout or settings.multiprocessing_context):
        raise ValueError(
            "timeout and multiprocessing_context say how local workers run, and executor= does as "
            "well: pass "
            "executor=LocalProcesses(start_method=..., stall_timeout=...) alone"
        )


#: Arguments of which a loader that is made of another one's attributes takes the other's value,
#: unless it is given one.
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
    """Return settings of a loader that a library makes of the attributes of another."""
    changes: dict[str, Any] = {}
    for name, default in _INHERITED.items():
        if getattr(settings, name) == default:
            changes[name] = getattr(other, name)
    order = settings.order
    hides_batch_sampler = other.order.kind == BATCH_SAMPLER
    hides_shuffling = other.order.kind == SHUFFLED and order.kind == IN_ORDER
    if order.distributed is not None and (hides_batch_sampler or hides_shuffling):
        # Lightning, which put the sampler in, does not see what is special about our batch sampler.
        changes["order"] = replace(
            other.order, distributed=order.distributed, observer=order.observer
        )
    return replace(settings, **changes)
