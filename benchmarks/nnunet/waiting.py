"""Row: a training loop whose network takes as long for a batch as a GPU does."""

from __future__ import annotations

import time
from functools import partial
from statistics import median

from benchmarks.engine.systems import STOCK, SYSTEMS
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import NNUNET, Task, make_loader
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import Settings
from detaug.tools.bench.systems import Workers
from detaug.tools.bench.timing import Consumption, consume, in_fresh_process, interleaved

#: Seconds of a forward pass, a backward pass and a step on a GPU, during which the CPU is free. A
#: user measured 0.131 on an A100 (nnU-Net's issue 3063).
STEP = 0.09
SECONDS = 20.0
ROUNDS = 3
#: Every worker of nnU-Net's has then timed the algorithms of its blur (seconds, once).
WARM_UP = 24


def measure_waiting(task: Task, data: Preprocessed, settings: Settings) -> Row:
    """Measure the loop's steps, and the share of its time that it waits for data."""
    runs = interleaved(
        (OURS, NNUNET),
        settings.rounds(ROUNDS),
        partial(in_fresh_process, _consume, task, data, settings),
    )
    seconds = {name: [run.seconds_per_batch for run in runs[name]] for name in runs}
    waiting = {name: median(100 * run.waited / run.wall for run in runs[name]) for name in runs}
    return row_of(
        f"{task.name}, a training loop with a step of {1e3 * STEP:.0f} ms",
        "ms",
        seconds,
        {**task.settings(), "workers": settings.workers, "seconds": SECONDS},
        {"% of the time waiting": waiting[OURS], f"%, {NNUNET}": waiting[NNUNET]},
    )


def _consume(task: Task, data: Preprocessed, settings: Settings, system: str) -> Consumption:
    loader = make_loader(system, task, data)
    with SYSTEMS[augmenter_of(system)](loader, as_trained(system, settings.workers)) as batches:
        return consume(
            batches,
            _train,
            warm_up=4 if settings.quick else WARM_UP,
            seconds=2.0 if settings.quick else SECONDS,
        )


def _train(_batch: object) -> None:
    time.sleep(STEP)


def augmenter_of(system: str) -> str:
    """Return the name of the augmenter with which this system's trainer runs its loader."""
    return OURS if system == OURS else STOCK


def as_trained(system: str, workers: Workers) -> Workers:
    """Return the workers that detaug's trainers start where nnU-Net's starts `workers`."""
    if system == OURS:
        return Workers(workers.processes, workers.num_cached * 3 // 2, workers.wait_time)
    return workers
