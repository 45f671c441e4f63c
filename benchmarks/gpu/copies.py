"""Part: do batches arrive on the device unchanged, and while the step before them still runs?"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import cycle
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader

from benchmarks.gpu.bench import Bench, Child, Finding
from benchmarks.gpu.trainers import synchronise
from detaug import DeterministicAugmenter, fingerprint
from detaug.loops import prefetch_to
from detaug.tools.bench.timing import consume

#: Batches, kills and workers; then those of the short form.
LENGTH = (500, 10, 4)
QUICK_LENGTH = (12, 1, 1)

#: Batches whose bytes are compared.
SHAPE = (2, 1, 32, 32, 32)

#: The batch whose copy is timed, 67 MB; and the edge of the matrices that a step multiplies.
LARGE = (8, 1, 128, 128, 128)
EDGE = 4096
PRODUCTS = 10


class Loader(DataLoader):
    """Random images, with the process that made them."""

    def __init__(self) -> None:
        super().__init__(None, SHAPE[0], infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        """Return an image, its labels, and the process."""
        image = np.random.standard_normal(SHAPE).astype(np.float32)
        labels = (image > 0).astype(np.int16)
        return {
            "data": torch.from_numpy(image),
            "seg": torch.from_numpy(labels),
            "pid": os.getpid(),
        }


def run(bench: Bench) -> Iterator[Finding]:
    """Compare the bytes of batches with `replay`'s while workers are killed; time the copies."""
    yield from Child(bench, "copies", _findings, bench.device, bench.quick).findings()


def _findings(device: str, quick: bool) -> Iterator[Finding]:
    torch.set_num_threads(1)
    length = QUICK_LENGTH if quick else LENGTH
    yield _bytes_on(device, *length, pin_memory=False)
    if device != "cuda":
        yield Finding("pin_memory=True", "not here: a GPU")
        yield Finding("overlap", "not here: a GPU")
        return
    yield _bytes_on(device, *length, pin_memory=True)
    yield _overlap(device)


def _augmenter(batches: int, workers: int, pin_memory: bool) -> DeterministicAugmenter:
    return DeterministicAugmenter(
        Loader(), None, workers, seed=1234, batches_per_epoch=batches, pin_memory=pin_memory
    )


def _bytes_on(device: str, batches: int, kills: int, workers: int, pin_memory: bool) -> Finding:
    """Return whether batches on the device equal those that are made again in this process."""
    with _augmenter(1, 1, pin_memory) as augmenter:
        is_pinned = next(augmenter)["data"].is_pinned()
    # Evenly spread over the run, and neither its first nor its last batch.
    killed_at = {round((number + 1) * batches / (kills + 1)) for number in range(kills)}
    different = set()
    with _augmenter(batches, workers, pin_memory) as augmenter:
        for step, batch in enumerate(prefetch_to(augmenter.loader(), device)):
            if step in killed_at:
                # A worker that was killed before may have made this batch.
                with suppress(ProcessLookupError):
                    os.kill(batch["pid"], signal.SIGKILL)
            again = augmenter.replay(0, step)
            for key in ("data", "seg"):
                if fingerprint(batch[key].cpu()) != fingerprint(again[key]):
                    different.add(step)
        restarts = augmenter.stats()["restarts"]
    name = f"prefetch_to({device!r})"
    text = (
        f"{step + 1 - len(different)} of {batches} batches equal replay's; "
        f"{kills} kills, {restarts} restarts"
    )
    if pin_memory:
        name += ", pin_memory=True"
        text += f"; page-locked: {is_pinned}"
    values = {
        "batches": batches,
        "kills": kills,
        "restarts": restarts,
        "different": sorted(different),
        "is_pinned": is_pinned,
    }
    is_equal = step == batches - 1 and not different and restarts > 0
    return Finding(name, text, values, is_equal and is_pinned == pin_memory)


def _overlap(device: str) -> Finding:
    """Return how much of a copy's time is hidden behind the step before it.

    Every step waits for the GPU, as nnU-Net's does when it reads the loss.
    """
    batch = torch.zeros(LARGE).pin_memory()
    on_device = batch.to(device)
    matrix = torch.randn((EDGE, EDGE), device=device)

    def step(arrived: torch.Tensor) -> None:
        product = matrix
        for _ in range(PRODUCTS):
            product = product @ matrix
        product[0, 0] += arrived.sum()
        synchronise(device)

    def copy_and_step(waiting: torch.Tensor) -> None:
        step(waiting.to(device))

    alone = _milliseconds(cycle([on_device]), step)
    one_after_the_other = _milliseconds(cycle([batch]), copy_and_step)
    prefetched = _milliseconds(iter(prefetch_to(cycle([batch]), device)), step)
    values = {
        "ms_step": alone,
        "ms_copy_and_step": one_after_the_other,
        "ms_prefetched": prefetched,
        "share_of_the_copy_hidden": (one_after_the_other - prefetched)
        / (one_after_the_other - alone),
    }
    text = (
        f"a step of {alone:.1f} ms; {one_after_the_other:.1f} ms with its copy before it, "
        f"{prefetched:.1f} ms with prefetch_to"
    )
    return Finding("overlap", text, values)


def _milliseconds(batches: Iterator[Any], step: Callable[[Any], None]) -> float:
    return 1e3 * consume(batches, step, warm_up=5, least=50).seconds_per_batch
