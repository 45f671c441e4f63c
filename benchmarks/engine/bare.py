"""The least that workers with shared memory can do: what no engine of this kind is faster than.

Forked workers copy what the loader gives into shared memory, or have it made there, and send one byte. Nothing is in order,
seeded, checked, described or restarted, and the consumer gets the number of a slot, which it gives back at once.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import select
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from benchmarks.engine.settings import Settings
from detaug.memory.batch_memory import allocate_with

#: Holds a batch of `benchmarks.engine.loaders.READY_SHAPE`.
_SLOT_BYTES = 32 * 2**20
_ALIGNMENT = 64


@contextmanager
def bare_processes(loader: Any, settings: Settings) -> Iterator[Iterator[int]]:
    """An endless iterator over numbers of slots that have just been filled."""
    context = multiprocessing.get_context("fork")
    number = settings.cached_per_process() + 1
    workers, ends = [], {}
    for _ in range(settings.processes):
        slots = [mmap.mmap(-1, _SLOT_BYTES) for _ in range(number)]
        free, filled = os.pipe(), os.pipe()
        worker = context.Process(
            target=_work, args=(loader, slots, free[0], filled[1]), daemon=True
        )
        worker.start()
        os.close(free[0])
        os.close(filled[1])  # so that its end is seen
        workers.append(worker)
        ends[filled[0]] = free[1]
        os.write(free[1], bytes(range(number)))
    try:
        yield _slots(ends)
    finally:
        for worker in workers:
            worker.kill()
            worker.join()


def _slots(ends: dict[int, int]) -> Iterator[int]:
    while True:
        for end in select.select(list(ends), [], [])[0]:
            slot = os.read(end, 1)
            yield slot[0]
            os.write(ends[end], slot)


def _work(loader: Any, slots: list[mmap.mmap], free: int, filled: int) -> None:
    torch.set_num_threads(1)
    while True:
        slot = os.read(free, 1)
        memory = np.frombuffer(slots[slot[0]], np.uint8)
        used = 0

        def take(size: int) -> np.ndarray:
            nonlocal used
            begin, used = used, used + -(-size // _ALIGNMENT) * _ALIGNMENT
            return memory[begin : begin + size]  # noqa: B023  (called before the next turn)

        allocate_with(take)
        for tensor in next(loader).values():
            array = tensor.numpy()
            if not np.shares_memory(memory, array):
                np.copyto(take(array.nbytes), array.reshape(-1).view(np.uint8))
        os.write(filled, slot)
