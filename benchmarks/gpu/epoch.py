"""Part: how long a real step of nnU-Net's default network takes, and what it waits for."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

import torch

from benchmarks.gpu.bench import Bench, Child, Finding
from benchmarks.gpu.card import utilisation
from benchmarks.gpu.trainers import (
    DEFAULT_2D,
    DEFAULT_3D,
    DETAUG,
    FAST,
    STOCK,
    TINY_2D,
    TINY_3D,
    Plan,
    dataset_of,
    make_trainer,
)
from detaug.tools.bench.timing import Consumption, consume

#: The most telling number of workers first: time may run out.
WORKERS = (8, 2, 4, 12)

#: Steps that are not timed (cuDNN and nnU-Net's blur try their algorithms), the least number of
#: those that are, and the least of their seconds. Then those of the short form.
LENGTH = {"warm_up": 12, "least": 20, "seconds": 6.0}
QUICK_LENGTH = {"warm_up": 1, "least": 2, "seconds": 0.0}

#: Steps of an epoch while it is measured: its end must not come.
ENDLESS = 10**6

#: Of nnU-Net's epoch.
STEPS_OF_AN_EPOCH = 250


def run(bench: Bench) -> Iterator[Finding]:
    """Measure the 3-D network with every number of workers, then the 2-D network with one.

    Each is fed by nnU-Net's own trainer, and by detaug's batches with nnU-Net's step; then with
    detaug's step as well, which is deterministic and takes the same time whoever makes the batches.
    """
    plan_3d = TINY_3D
    plan_2d = TINY_2D
    if bench.device == "cuda":
        plan_3d = DEFAULT_3D
        plan_2d = DEFAULT_2D
    if bench.quick:
        yield from _measure(bench, plan_3d, {STOCK: (2,), FAST: (2,)})
        return
    yield from _measure(bench, plan_3d, {STOCK: WORKERS, FAST: WORKERS, DETAUG: WORKERS[:1]})
    yield from _measure(bench, plan_2d, dict.fromkeys((STOCK, FAST, DETAUG), WORKERS[:1]))


def _measure(bench: Bench, plan: Plan, workers_of: dict[str, Sequence[int]]) -> Iterator[Finding]:
    root = dataset_of(bench, plan)
    for trainer, workers in workers_of.items():
        name = f"{trainer}, {'×'.join(map(str, plan.patch))}, batch {plan.batch_size}"
        # One child for all numbers of workers: to start CUDA takes seconds.
        yield from Child(bench, name, _steps, bench, name, root, plan, trainer, workers).findings()


def _steps(
    bench: Bench, name: str, root: Path, plan: Plan, kind: str, workers: Sequence[int]
) -> Iterator[Finding]:
    if bench.device == "cuda" and kind != DETAUG:
        # As ``nnUNetv2_train`` sets it.
        torch.backends.cudnn.benchmark = True
    trainer = make_trainer(kind, root, plan, bench.device)
    trainer.num_iterations_per_epoch = ENDLESS
    for count in workers:
        timed, percent = _train(trainer, count, bench)
        values = {
            "system": kind,
            "plan": asdict(plan),
            "workers": count,
            "steps": timed.batches,
            "ms_per_step": 1e3 * timed.seconds_per_batch,
            "share_waiting": timed.waited / timed.wall,
            "gpu_percent": percent,
            "cpu_seconds_per_step": timed.cpu_seconds_per_batch,
            "epoch_seconds": STEPS_OF_AN_EPOCH * timed.seconds_per_batch,
        }
        busy = "not here" if percent is None else f"{percent:.0f} %"
        text = (
            f"{values['ms_per_step']:.0f} ms a step, {100 * values['share_waiting']:.0f} % of it "
            f"waiting, GPU {busy}, {values['cpu_seconds_per_step']:.2f} CPU s a step, "
            f"{values['epoch_seconds']:.0f} s for {STEPS_OF_AN_EPOCH} steps"
        )
        yield Finding(f"{name}, {count} workers", text, values)


def _train(trainer: Any, workers: int, bench: Bench) -> tuple[Consumption, float | None]:
    """Run steps, and return their time and the GPU's utilisation in percent."""
    os.environ["nnUNet_n_proc_DA"] = str(workers)
    training, validation = trainer.get_dataloaders()
    trainer.on_train_epoch_start()
    length: dict[str, Any] = QUICK_LENGTH if bench.quick else LENGTH
    try:
        with utilisation(bench.device) as readings:
            timed = consume(iter(training), trainer.train_step, **length)
    finally:
        for augmenter in (training, validation):
            if hasattr(augmenter, "_finish"):
                augmenter._finish()
    return timed, fmean(readings) if readings else None
