"""Part: how long a real step of nnU-Net's default network takes, and what it waits for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.children import Child, ChildFailed, Send
from benchmarks.gpu.dataset import (
    DEFAULT_2D,
    DEFAULT_3D,
    TINY_2D,
    TINY_3D,
    Plan,
    dataset_of,
    use_folders,
)
from benchmarks.gpu.findings import Bench, Finding, require
from benchmarks.gpu.machine import Utilisation
from benchmarks.gpu.steps import make_trainer
from benchmarks.gpu.trainings import DETAUG, FAST, STOCK
from detaug.tools.bench.timing import consume

#: What each trainer shows: nnU-Net's own; detaug's batches with nnU-Net's step; detaug's step as
#: well, which is deterministic.
SYSTEMS = (STOCK, FAST, DETAUG)

#: The most telling number of workers first: time may run out.
WORKERS = (8, 2, 4, 12)

#: Steps of an epoch while it is measured: its end must not come.
ENDLESS = 10**6

#: Of nnU-Net's epoch.
STEPS_OF_AN_EPOCH = 250


@dataclass(frozen=True)
class Length:
    """How long a row is measured.

    Attributes:
        warm_up: steps that are not timed: cuDNN and nnU-Net's blur try their algorithms.
        seconds: the least time of those that are.
        steps: the least number of those that are.
    """

    warm_up: int = 12
    seconds: float = 6.0
    steps: int = 20


QUICK = Length(warm_up=1, seconds=0.0, steps=2)


def run(bench: Bench) -> Iterator[Finding]:
    """Measure the 3-D network with every number of workers, then the 2-D network with one."""
    require("nnunetv2")
    plan_3d = TINY_3D
    plan_2d = TINY_2D
    if bench.device == "cuda":
        plan_3d = DEFAULT_3D
        plan_2d = DEFAULT_2D
    if bench.quick:
        yield from _measure(bench, plan_3d, SYSTEMS[:2], (2,), QUICK)
        return
    yield from _measure(bench, plan_3d, SYSTEMS, WORKERS, Length())
    yield from _measure(bench, plan_2d, SYSTEMS, WORKERS[:1], Length())


def _measure(
    bench: Bench, plan: Plan, systems: Sequence[str], workers: Sequence[int], length: Length
) -> Iterator[Finding]:
    root = dataset_of(bench, plan, plan.configuration)
    for system in systems:
        # Deterministic arithmetic takes the same time whoever makes the batches.
        counts = workers[:1] if system == DETAUG else workers
        yield from _measure_system(bench, root, plan, system, counts, length)


def _measure_system(
    bench: Bench, root: Path, plan: Plan, system: str, workers: Sequence[int], length: Length
) -> Iterator[Finding]:
    """Yield a finding for each number of workers, all from one child, as far as time reaches."""
    log = bench.folder / f"{system}-{plan.configuration}.txt"
    child = Child(_steps, bench.device, root, plan, system, workers, length, log=log)
    missing = list(workers)
    try:
        for finding in child.results(bench.seconds_left):
            missing.pop(0)
            yield finding
    except ChildFailed as error:
        for count in missing:
            name = _name(system, plan, count)
            if bench.seconds_left == 0:
                yield Finding(name, "no time left")
            else:
                yield Finding(name, f"failed: {error}", {"error": str(error)}, False)


def _name(system: str, plan: Plan, workers: int) -> str:
    patch = "×".join(map(str, plan.patch))
    return f"{system}, {patch}, batch {plan.batch_size}, {workers} workers"


def _steps(
    send: Send,
    device: str,
    root: Path,
    plan: Plan,
    system: str,
    workers: Sequence[int],
    length: Length,
) -> None:
    use_folders(root)
    if device == "cuda" and system != DETAUG:
        # As ``nnUNetv2_train`` sets it.
        torch.backends.cudnn.benchmark = True
    trainer = make_trainer(system, plan, device)
    trainer.num_iterations_per_epoch = ENDLESS
    for count in workers:
        send(_measured_steps(trainer, plan, system, count, device, length))


def _measured_steps(
    trainer: Any, plan: Plan, system: str, workers: int, device: str, length: Length
) -> Finding:
    os.environ["nnUNet_n_proc_DA"] = str(workers)
    training, validation = trainer.get_dataloaders()
    trainer.on_train_epoch_start()
    try:
        with Utilisation(device) as gpu:
            timed = consume(
                iter(training),
                trainer.train_step,
                warm_up=length.warm_up,
                least=length.steps,
                seconds=length.seconds,
            )
    finally:
        for augmenter in (training, validation):
            if hasattr(augmenter, "_finish"):
                augmenter._finish()
    milliseconds = 1e3 * timed.seconds_per_batch
    waiting = timed.waited / timed.wall
    values = {
        "system": system,
        "plan": asdict(plan),
        "workers": workers,
        "steps": timed.batches,
        "ms_per_step": milliseconds,
        "share_waiting": waiting,
        "gpu_percent": gpu.percent,
        "cpu_seconds_per_step": timed.cpu_seconds_per_batch,
        "epoch_seconds": STEPS_OF_AN_EPOCH * timed.seconds_per_batch,
    }
    utilisation = "not here" if gpu.percent is None else f"{gpu.percent:.0f} %"
    text = (
        f"{milliseconds:.0f} ms a step, {100 * waiting:.0f} % of it waiting, GPU {utilisation}, "
        f"{timed.cpu_seconds_per_batch:.2f} CPU s a step, "
        f"{values['epoch_seconds']:.0f} s for {STEPS_OF_AN_EPOCH} steps"
    )
    return Finding(_name(system, plan, workers), text, values)
