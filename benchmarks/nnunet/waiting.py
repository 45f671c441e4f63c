"""Rows: how much of a training's time goes into waiting for data, with a network that takes so many ms for a batch."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SYSTEMS
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import DETAUG, STOCK, Task, as_trained, make_loader
from benchmarks.nnunet.memory import AUGMENTERS
from benchmarks.report import Check, Row
from detaug.bench.measuring import in_fresh_process, interleaved

#: Milliseconds for a batch: forward, backward and step on a GPU, during which the CPU is free. An A100 takes 131, and 145
#: with the batch's augmentation on it (nnU-Net's issue 3063); a faster one takes 90.
NETWORKS = (90, 131, 145)
SECONDS, ROUNDS = 20.0, 3
#: Long enough for every worker of nnU-Net's to be through with timing its blur's algorithms (seconds, once).
WARMUP = 24
SHARE = 5.0  # per cent


def measure_waiting(name: str, task: Task, data: Preprocessed, network: int, quick: bool) -> Row:
    """Per cent of the loop's time that is spent in ``next()``; the network takes so many milliseconds."""
    settings = Settings(quick=quick)
    rounds, seconds, warm_up = (
        settings.rounds(ROUNDS),
        2.0 if quick else SECONDS,
        4 if quick else WARMUP,
    )
    shares = interleaved(
        (DETAUG, STOCK),
        rounds,
        lambda system: in_fresh_process(
            _share, system, task, data, settings, network / 1e3, warm_up, seconds
        ),
    )
    ours, theirs = shares[DETAUG], shares[STOCK]
    return Row(
        name=f"{name}, {network} ms per step: share of time spent waiting",
        unit="%",
        ours=median(ours),
        checks=[
            Check("nothing", None, median(ours), (min(ours), max(ours)), "<=", SHARE),
            Check(STOCK, median(theirs), median(theirs), (min(theirs), max(theirs)), ">=", SHARE),
        ],
        repeats=rounds,
        settings={
            **task.settings(),
            "processes": settings.processes,
            "num_cached": settings.num_cached,
            "seconds": seconds,
            "step_seconds": network / 1e3,
        },
        details={"per_cent": shares},
    )


def _share(
    system: str,
    task: Task,
    data: Preprocessed,
    settings: Settings,
    step: float,
    warm_up: int,
    seconds: float,
) -> float:
    with SYSTEMS[AUGMENTERS[system]](
        make_loader(system, task, data), as_trained(system, settings)
    ) as iterator:
        for _ in range(warm_up):
            next(iterator)
            time.sleep(step)
        waited, began = 0.0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            asked = time.perf_counter()
            batch = next(iterator)
            waited += time.perf_counter() - asked
            time.sleep(step)
        del batch
        return 100 * waited / (time.perf_counter() - began)
