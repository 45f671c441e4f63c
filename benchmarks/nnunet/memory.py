"""Rows: the memory of two worker processes, and of the whole training loop with them."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from benchmarks.engine.process_memory import sleep_until
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SYSTEMS
from benchmarks.measure import Ratio, interleaved, result_of, start_fresh_process
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import DETAUG, STOCK, Task, make_loader
from benchmarks.report import Row, ratio_check

#: Whose processes make and carry the batches.
AUGMENTERS = {DETAUG: "detaug", STOCK: "NonDet"}

BATCHES, ROUNDS = 60, 3
SAMPLE_EVERY = 0.05  # seconds
PAUSE_EVERY, PAUSE = 20, 2.0  # batches, seconds: the consumer stops now and then, so that every buffer fills


def measure_memory(name: str, task: Task, data: Preprocessed, quick: bool) -> Row:
    """Peaks of PSS (shared pages divided among those who share them), sampled from outside; each system with the processes
    it comes with: two workers, and what else it starts."""
    settings = Settings(quick=quick)
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    runs = interleaved((DETAUG, STOCK), rounds, lambda system: _peaks(system, task, data, settings, batches))
    peaks = {
        part: {system: [run[part] for run in runs[system]] for system in runs} for part in ("workers", "all", "largest")
    }
    workers, everything = peaks["workers"], peaks["all"]
    return Row(
        name=f"{name}, peak memory of 2 workers (PSS)",
        unit="MB",
        ours=median(workers[DETAUG]) / 1e6,
        checks=[
            ratio_check(STOCK, median(workers[STOCK]) / 1e6, Ratio.of(workers[DETAUG], workers[STOCK]), "<=", 1.0),
            ratio_check(
                f"{STOCK}, with the parent",
                median(everything[STOCK]) / 1e6,
                Ratio.of(everything[DETAUG], everything[STOCK]),
                "<=",
                1.0,
            ),
            ratio_check(
                f"{STOCK}, largest process (peak RSS)",
                median(peaks["largest"][STOCK]) / 1e6,
                Ratio.of(peaks["largest"][DETAUG], peaks["largest"][STOCK]),
                "<=",
            ),
        ],
        repeats=rounds,
        settings={
            **task.settings(),
            "processes": settings.processes,
            "num_cached": settings.num_cached,
            "batches": batches,
        },
        details={"bytes": peaks},
    )


def _peaks(system: str, task: Task, data: Preprocessed, settings: Settings, batches: int) -> dict[str, int]:
    """Bytes: the peak PSS of all that the consumer started, of those and the consumer, and the peak RSS of the largest of
    those that it started."""
    taken = multiprocessing.get_context("fork").RawValue("q", 0)
    process, receiver = start_fresh_process(_consume, system, task, data, settings, batches, taken)
    found = {"workers": 0, "all": 0, "largest": 0}
    due = time.monotonic()
    while not receiver.poll():
        if process.exitcode is not None:
            break
        if 0 < taken.value < batches:
            sizes = [_size(pid) for pid in _descendants(process.pid)]
            workers = sum(pss for pss, _ in sizes)
            found["workers"] = max(found["workers"], workers)
            found["all"] = max(found["all"], workers + _size(process.pid)[0])
            found["largest"] = max([found["largest"], *(peak for _, peak in sizes)])
        due = max(due + SAMPLE_EVERY, time.monotonic())
        sleep_until(due)
    result_of(process, receiver)
    return found


def _descendants(pid: int) -> list[int]:
    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _size(pid: int) -> tuple[int, int]:
    """Bytes: PSS now, and the largest RSS so far; nothing of a process that has ended."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8")
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    return _kilobytes(rollup, "Pss:"), _kilobytes(status, "VmHWM:")


def _kilobytes(text: str, key: str) -> int:
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith(key)), 0)


def _consume(system: str, task: Task, data: Preprocessed, settings: Settings, batches: int, taken: Any) -> None:
    with SYSTEMS[AUGMENTERS[system]](make_loader(system, task, data), settings) as iterator:
        for number in range(1, batches + 1):
            batch = next(iterator)
            taken.value = number
            if number % PAUSE_EVERY == 0:
                time.sleep(PAUSE)
        del batch
