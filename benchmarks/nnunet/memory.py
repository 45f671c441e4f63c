"""Rows: the peak memory of a training loop's process and two workers."""

from __future__ import annotations

import multiprocessing
import os
import stat
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil

from benchmarks.engine.systems import SYSTEMS
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import NNUNET, Task, make_loader
from benchmarks.nnunet.waiting import as_trained, augmenter_of
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import Settings
from detaug.tools.bench.timing import MeasurementError, interleaved

BATCHES = 40
ROUNDS = 2
SAMPLE_EVERY = 0.25  # seconds
#: Seconds for which the consumer stops half-way and before its last batch: every buffer fills.
PAUSE = 15.0
QUICK_PAUSE = 1.0

#: What the paths of shared memory begin with.
SHARED = ("/memfd:", "/dev/shm/")


def measure_memory(task: Task, data: Preprocessed, settings: Settings) -> Row:
    """Measure the peak over 40 batches with pauses, in which every buffer fills."""
    peaks = interleaved(
        (OURS, NNUNET), settings.rounds(ROUNDS), partial(_peak, task, data, settings)
    )
    return row_of(
        f"{task.name}, peak memory with {settings.workers.processes} workers",
        "MB",
        peaks,
        {**task.settings(), "workers": settings.workers, "batches": settings.batches(BATCHES)},
    )


def _peak(task: Task, data: Preprocessed, settings: Settings, system: str) -> float:
    """Return the most bytes that the processes had at once, sampled from outside."""
    # A fresh interpreter: pages that it shared with this process would not count.
    spawn = multiprocessing.get_context("spawn")
    process = spawn.Process(target=_consume, args=(task, data, settings, system))
    process.start()
    peak = 0
    while process.exitcode is None:
        peak = max(peak, tree_memory(process.pid))
        process.join(SAMPLE_EVERY)
    if process.exitcode != 0:
        raise MeasurementError(
            f"the process that took {system}'s batches ended with exit code {process.exitcode}"
        )
    return float(peak)


def _consume(task: Task, data: Preprocessed, settings: Settings, system: str) -> None:
    # nnU-Net's workers are forked where they can be.
    multiprocessing.set_start_method("fork", force=True)
    batches = settings.batches(BATCHES)
    loader = make_loader(system, task, data)
    with SYSTEMS[augmenter_of(system)](loader, as_trained(system, settings.workers)) as iterator:
        for number in range(1, batches + 1):
            batch = next(iterator)
            if number in (batches // 2, batches - 1):
                time.sleep(QUICK_PAUSE if settings.quick else PAUSE)
        del batch


def tree_memory(pid: int | None) -> int:
    """Return the bytes that a process and its descendants have for themselves.

    These are anonymous pages, those that a fork shares counted once, and the shared memory of
    batches, counted once wherever it is mapped or on its way. Pages of files (libraries, the data
    set in the system's cache) are left out: they are there in any case, whoever maps them.
    """
    anonymous = 0
    shared: dict[int, int] = {}
    for member in _tree(pid):
        folder = Path(f"/proc/{member}")
        try:
            anonymous += _anonymous(folder)
            shared.update(_mapped(folder))
            shared.update(_open(folder))
        except (FileNotFoundError, ProcessLookupError):  # it has ended
            continue
    return anonymous + sum(shared.values())


def _tree(pid: int | None) -> list[int]:
    try:
        root = psutil.Process(pid)
        return [root.pid, *(child.pid for child in root.children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


def _anonymous(process: Path) -> int:
    """Return the bytes of anonymous pages; a page that n processes share counts 1/n."""
    for line in (process / "smaps_rollup").read_text(encoding="utf-8").splitlines():
        if line.startswith("Pss_Anon:"):
            return int(line.split()[1]) * 1024
    return 0


def _mapped(process: Path) -> dict[int, int]:
    """Return inode → bytes of the shared memory that a process has mapped."""
    sizes = {}
    for line in (process / "maps").read_text(encoding="utf-8").splitlines():
        fields = line.split(maxsplit=5)
        if len(fields) == 6 and fields[5].startswith(SHARED):
            start, end = (int(address, 16) for address in fields[0].split("-"))
            sizes[int(fields[4])] = end - start
    return sizes


def _open(process: Path) -> dict[int, int]:
    """Return inode → bytes of the shared memory that a process holds open: batches on their way."""
    sizes = {}
    for link in (process / "fd").iterdir():
        try:
            if not os.readlink(link).startswith(SHARED):
                continue
            status: Any = link.stat()
        except FileNotFoundError:  # closed meanwhile
            continue
        if stat.S_ISREG(status.st_mode):
            sizes[status.st_ino] = status.st_blocks * 512
    return sizes
