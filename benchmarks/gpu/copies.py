"""Part: do batches arrive on the device unchanged, and while the step before them still runs?"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from itertools import cycle
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader

from benchmarks.gpu.children import Child, ChildFailed, Send
from benchmarks.gpu.findings import Bench, Finding
from benchmarks.gpu.steps import settle, synchronise
from detaug import DeterministicAugmenter, fingerprint
from detaug.loops import prefetch_to
from detaug.tools.bench.timing import consume

BATCHES = 500
KILLS = 10
QUICK_BATCHES = 12
QUICK_KILLS = 1
WORKERS = 4
QUICK_WORKERS = 1

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
    child = Child(_findings, bench.device, bench.quick, log=bench.folder / "log.txt")
    try:
        yield from child.results(bench.seconds_left)
    except ChildFailed as error:
        yield Finding("copies", f"failed: {error}", {"error": str(error)}, is_as_promised=False)


def _findings(send: Send, device: str, quick: bool) -> None:
    settle()
    send(_bytes_on(device, quick, pin_memory=False))
    if device == "cuda":
        send(_bytes_on(device, quick, pin_memory=True))
        send(_is_pinned())
        send(_overlap(device))
        return
    send(Finding("pin_memory=True", "not here: a GPU"))
    send(Finding("overlap", "not here: a GPU"))


def _augmenter(workers: int, batches: int, pin_memory: bool) -> DeterministicAugmenter:
    return DeterministicAugmenter(
        Loader(), None, workers, seed=1234, batches_per_epoch=batches, pin_memory=pin_memory
    )


def _bytes_on(device: str, quick: bool, pin_memory: bool) -> Finding:
    """Return whether batches on the device equal those that are made again in this process."""
    batches = BATCHES
    kills = KILLS
    workers = WORKERS
    if quick:
        batches = QUICK_BATCHES
        kills = QUICK_KILLS
        workers = QUICK_WORKERS
    # Evenly spread over the run, and neither its first nor its last batch.
    killed_at = {round((number + 1) * batches / (kills + 1)) for number in range(kills)}
    different = []
    with _augmenter(workers, batches, pin_memory) as augmenter:
        for step, batch in enumerate(prefetch_to(augmenter.loader(), device)):
            if step in killed_at:
                # A worker that was killed before may have made this batch.
                with suppress(ProcessLookupError):
                    os.kill(batch["pid"], signal.SIGKILL)
            again = augmenter.replay(0, step)
            for key in ("data", "seg"):
                if fingerprint(batch[key].cpu()) != fingerprint(again[key]):
                    different.append(step)
        restarts = augmenter.stats()["restarts"]
    is_as_promised = step == batches - 1 and not different and restarts > 0
    name = f"prefetch_to({device!r})"
    if pin_memory:
        name += ", pin_memory=True"
    text = (
        f"{step + 1 - len(set(different))} of {batches} batches equal replay's; "
        f"{kills} kills, {restarts} restarts"
    )
    values = {"batches": batches, "kills": kills, "restarts": restarts, "different": different}
    return Finding(name, text, values, is_as_promised)


def _is_pinned() -> Finding:
    """Return whether `pin_memory=True` gives page-locked tensors."""
    with _augmenter(1, 1, pin_memory=True) as augmenter:
        is_pinned = next(augmenter)["data"].is_pinned()
    text = "tensors are page-locked" if is_pinned else "tensors are NOT page-locked"
    return Finding("pin_memory=True", text, {"is_pinned": is_pinned}, is_as_promised=is_pinned)


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

    alone = _seconds(cycle([on_device]), step)
    one_after_the_other = _seconds(cycle([batch]), copy_and_step)
    prefetched = _seconds(iter(prefetch_to(cycle([batch]), device)), step)
    copying = one_after_the_other - alone
    hidden = (one_after_the_other - prefetched) / copying
    values = {
        "ms_step": 1e3 * alone,
        "ms_copy_and_step": 1e3 * one_after_the_other,
        "ms_prefetched": 1e3 * prefetched,
        "share_of_the_copy_hidden": hidden,
    }
    text = (
        f"a step of {1e3 * alone:.1f} ms; {1e3 * one_after_the_other:.1f} ms with its copy before "
        f"it, {1e3 * prefetched:.1f} ms with prefetch_to"
    )
    return Finding("overlap", text, values)


def _seconds(batches: Iterator[Any], step: Any) -> float:
    return consume(batches, step, warm_up=5, least=50).seconds_per_batch
