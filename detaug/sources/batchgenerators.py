"""batchgenerators' own `DataLoader` and what derives from it (nnU-Net's loader does)."""

from __future__ import annotations

import dis
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoader

from detaug.context import Current
from detaug.sources.base import DEFAULT_NUM_STREAMS, Source, spread_over_streams, tell


class InfiniteLoader(Source):
    """``DataLoader(infinite=True)``: every batch is drawn anew from the global RNG, so any copy can make any batch."""

    endless = True

    def __init__(self, loader: DataLoader, stateless: bool | None) -> None:
        self.loader = loader
        self.stateless = not assigns_attributes(type(loader)) if stateless is None else stateless
        declared = loader.number_of_threads_in_multithreaded
        self.default_num_streams = declared if declared is not None and declared > 1 else DEFAULT_NUM_STREAMS

    def begin(self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence) -> None:
        self.loader.was_initialized = False
        tell(self.loader, "set_thread_id", stream)

    def make(self, batch: Current) -> Any:
        if self.stateless:
            tell(self.loader, "set_thread_id", batch.stream)
        return next(self.loader)


class FiniteLoader(Source):
    """``DataLoader(infinite=False)``: its streams share one shuffled order out among them.

    Every epoch starts from a pristine copy whose shuffle state is seeded from (`seed_for_shuffle`, the epoch's child),
    equally in all streams: any epoch can be entered without walking through the earlier ones.
    """

    def __init__(self, loader: DataLoader, stateless: bool | None) -> None:
        if stateless:
            raise ValueError(
                f"{type(loader).__name__} is a finite DataLoader: it holds its position in the data, so it cannot be "
                "declared stateless=True"
            )
        self.loader = loader
        declared = loader.number_of_threads_in_multithreaded
        self.default_num_streams = declared if declared is not None and declared > 1 else 1
        self.num_steps = _number_of_batches(loader)

    def begin(self, stream: int, num_streams: int, epoch: int, epoch_child: np.random.SeedSequence) -> None:
        loader = self.loader
        # One declared thread skips nothing (batchgenerators' default); None would break its arithmetic.
        if loader.number_of_threads_in_multithreaded is None:
            loader.number_of_threads_in_multithreaded = num_streams
        spread_over_streams(loader, num_streams)
        loader.set_thread_id(stream)
        words = epoch_child.generate_state(4, np.uint32)
        if loader.seed_for_shuffle is not None:
            own = np.atleast_1d(np.asarray(loader.seed_for_shuffle, dtype=np.uint64)).astype(np.uint32)
            words = np.concatenate([words, own])
        loader.rs = np.random.RandomState(words)
        loader.was_initialized = False
        loader.last_reached = False

    def make(self, batch: Current) -> Any:
        return next(self.loader)


def _number_of_batches(loader: DataLoader) -> int | None:
    """Batches per pass over all streams, where the loader's class leaves batchgenerators' arithmetic as it is."""
    if type(loader).get_indices is not DataLoader.get_indices or type(loader).__next__ is not DataLoader.__next__:
        return None
    try:
        items, size = len(loader.indices), int(loader.batch_size)
    except (TypeError, ValueError):
        return None
    if size < 1:
        return None
    return -(-items // size) if loader.return_incomplete else items // size


def assigns_attributes(kind: type) -> bool:
    """Whether methods that a subclass adds to batchgenerators' `DataLoader` assign attributes while batches are made.

    Such a loader may carry something from batch to batch, so each stream gets its own copy of it unless the user
    declares ``stateless=True``.
    """
    setup = {"__init__", "__setstate__", "__getstate__", "set_thread_id", "set_epoch", "reset"}
    for owner in kind.__mro__:
        if owner is DataLoader:
            break
        for name, member in vars(owner).items():
            code = getattr(getattr(member, "__func__", member), "__code__", None)
            if name in setup or code is None:
                continue
            if any(instruction.opname in ("STORE_ATTR", "DELETE_ATTR") for instruction in dis.get_instructions(code)):
                return True
    return False
