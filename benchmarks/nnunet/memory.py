"""Rows: the memory of a training loop's process, two workers, and all that they need to work together."""

from __future__ import annotations

import multiprocessing
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.engine.process_memory import sleep_until
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SYSTEMS
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import DETAUG, STOCK, Task, as_trained, make_loader
from benchmarks.report import Row, ratio_check
from detaug.bench.measuring import MeasurementError, Ratio, interleaved

#: Whose processes make and carry the batches.
AUGMENTERS = {DETAUG: "detaug", STOCK: "NonDetMultiThreadedAugmenter"}

BATCHES, ROUNDS = 40, 2
SAMPLE_EVERY = 0.25  # seconds
PAUSE = 15.0  # seconds: the consumer stops half-way and before its last batch, so that every buffer fills

_SHARED = ("/memfd:", "/dev/shm/")


@dataclass
class Memory:
    """Bytes.

    Attributes:
        tree: what the whole tree of processes has for itself: anonymous pages, those that a fork shares counted once, and
            the shared memory of batches, counted once wherever it is mapped or on its way. Pages of files (libraries, the
            data set in the system's cache) are left out: they are there in any case, whoever maps them.
        workers: the same of all but the consumer, anonymous pages that a fork shares not counted.
        pss: proportional set sizes of the whole tree, with files, which depend on what else runs on the machine.
        largest: the largest peak RSS of a process other than the consumer.
    """

    tree: int = 0
    workers: int = 0
    pss: int = 0
    largest: int = 0

    def peak(self, other: Memory) -> Memory:
        """Of both, each by itself."""
        pairs = zip(vars(self).values(), vars(other).values(), strict=True)
        return Memory(*(max(pair) for pair in pairs))


def measure_memory(name: str, task: Task, data: Preprocessed, quick: bool) -> Row:
    """Peaks over 40 batches with pauses, in which every buffer fills, sampled from outside."""
    settings = Settings(quick=quick)
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    runs = interleaved(
        (DETAUG, STOCK), rounds, lambda system: _peak(system, task, data, settings, batches)
    )

    def check(what: str, part: str, bound: float | None) -> Any:
        ours, theirs = ([getattr(run, part) for run in runs[system]] for system in (DETAUG, STOCK))
        return ratio_check(
            f"{STOCK}{what}", median(theirs) / 1e6, Ratio.of(ours, theirs), "<=", bound
        )

    return Row(
        name=f"{name}, peak memory with 2 workers",
        unit="MB",
        ours=median(run.tree for run in runs[DETAUG]) / 1e6,
        checks=[
            check("", "tree", 1.0),
            check(", what workers have to themselves", "workers", 1.0),
            check(", PSS", "pss", None),
            check(", peak RSS of the largest worker", "largest", None),
        ],
        repeats=rounds,
        settings={
            **task.settings(),
            "processes": settings.processes,
            "num_cached": settings.num_cached,
            "batches": batches,
        },
        details={"bytes": {system: [vars(run) for run in runs[system]] for system in runs}},
    )


def _peak(system: str, task: Task, data: Preprocessed, settings: Settings, batches: int) -> Memory:
    # a fresh interpreter: pages that it shared with the benchmark's process would not count
    spawn = multiprocessing.get_context("spawn")
    taken = spawn.Value("q", 0)
    process = spawn.Process(target=_consume, args=(system, task, data, settings, batches, taken))
    process.start()
    found, due = Memory(), time.monotonic()
    while process.exitcode is None:
        if 0 < taken.value < batches:
            found = found.peak(_look(process.pid))
        due = max(due + SAMPLE_EVERY, time.monotonic())
        sleep_until(due)
    if process.exitcode != 0:
        raise MeasurementError(
            f"the process that took {system}'s batches ended with exit code {process.exitcode}"
        )
    return found


def _look(consumer: int | None) -> Memory:
    """The tree as it is now; a process that ends meanwhile counts nothing."""
    try:
        members = [
            consumer,
            *(child.pid for child in psutil.Process(consumer).children(recursive=True)),
        ]
    except psutil.NoSuchProcess:
        return Memory()
    found, batches = Memory(), {}
    for pid in members:
        try:
            rollup = _kilobytes(Path(f"/proc/{pid}/smaps_rollup"))
            peak = _kilobytes(Path(f"/proc/{pid}/status"))["VmHWM"]
            batches.update(_shared_memory(Path(f"/proc/{pid}")))
        except (
            FileNotFoundError,
            ProcessLookupError,
            KeyError,
        ):  # ended, perhaps with its status still there
            continue
        found.tree += rollup["Pss_Anon"]
        found.pss += rollup["Pss"]
        if pid != consumer:
            found.workers += rollup["Private_Dirty"] - _private_shared(rollup)
            found.largest = max(found.largest, peak)
    found.tree += sum(batches.values())
    found.workers += sum(batches.values())
    return found


def _private_shared(rollup: dict[str, int]) -> int:
    """Batches' memory that only one process has mapped, which is counted apart."""
    return min(rollup["Pss_Shmem"], rollup["Private_Dirty"])


def _kilobytes(file: Path) -> dict[str, int]:
    lines = (line.split() for line in file.read_text(encoding="utf-8").splitlines())
    return {
        parts[0][:-1]: int(parts[1]) * 1024
        for parts in lines
        if len(parts) == 3 and parts[2] == "kB"
    }


def _shared_memory(process: Path) -> dict[int, int]:
    """Inode → bytes of the memory-backed files that a process has mapped or holds open."""
    found = {}
    for line in (process / "maps").read_text(encoding="utf-8").splitlines():
        parts = line.split(maxsplit=5)
        if len(parts) == 6 and parts[5].startswith(_SHARED):
            start, end = (int(address, 16) for address in parts[0].split("-"))
            found[int(parts[4])] = end - start
    for link in (process / "fd").iterdir():
        try:
            if os.readlink(link).startswith(_SHARED):
                status = link.stat()
                if stat.S_ISREG(status.st_mode):
                    found[status.st_ino] = status.st_blocks * 512
        except FileNotFoundError:
            continue
    return found


def _consume(
    system: str, task: Task, data: Preprocessed, settings: Settings, batches: int, taken: Any
) -> None:
    # nnU-Net's workers are forked where they can be; a fresh interpreter's own would be fresh interpreters as well
    multiprocessing.set_start_method("fork", force=True)
    with SYSTEMS[AUGMENTERS[system]](
        make_loader(system, task, data), as_trained(system, settings)
    ) as iterator:
        for number in range(1, batches + 1):
            batch = next(iterator)
            taken.value = number
            if number in (batches // 2, batches - 1):
                time.sleep(PAUSE)
        del batch
