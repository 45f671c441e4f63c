"""Row: what the run-time check takes of an epoch on nnU-Net's own loader."""

from __future__ import annotations

import logging
import os
from statistics import median
from typing import Any

from benchmarks.cpu_time import tree_cpu_seconds
from benchmarks.engine.nnunet import BATCH_SIZE, PATCH, NnunetTask, nnunet_task
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SEED, batch_number_for
from benchmarks.measure import in_fresh_process, interleaved
from benchmarks.report import Check, Row

BATCHES, ROUNDS = 250, 3  # nnU-Net's epoch
ALLOWED = 1.015

_EVERY = {"checked": {}, "not checked": {"check_every": 0}}


def measure_check_cost(settings: Settings) -> Row:
    """CPU seconds of all processes for an epoch of 250 batches, from the first one on, with and without, by turns."""
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    with nnunet_task() as task:
        runs = interleaved(tuple(_EVERY), rounds, lambda name: in_fresh_process(_epoch, task, name, settings, batches))
    ratios = [ours[0] / theirs[0] for ours, theirs in zip(runs["checked"], runs["not checked"], strict=True)]
    plain = median(seconds for seconds, _ in runs["not checked"])
    return Row(
        name="the run-time check, an epoch of nnU-Net's 3-D loader",
        unit="CPU s per epoch",
        ours=median(seconds for seconds, _ in runs["checked"]),
        checks=[Check("check_every=0", plain, median(ratios), (min(ratios), max(ratios)), "<=", ALLOWED)],
        repeats=rounds,
        settings={"batches": batches, "patch": PATCH, "batch_size": BATCH_SIZE, "processes": settings.processes},
        details={"checks_per_epoch": [checked for _, checked in runs["checked"]]},
    )


def _epoch(task: NnunetTask, name: str, settings: Settings, batches: int) -> tuple[float, int]:
    from detaug import DeterministicAugmenter

    logging.getLogger("detaug").addFilter(lambda record: "benchmark=True" not in record.getMessage())  # as it should
    loader = task.loader(batch_number_for("detaug"))
    options: dict[str, Any] = _EVERY[name]
    with DeterministicAugmenter(
        loader, None, settings.processes, settings.num_cached, seed=SEED, start_method="fork", **options
    ) as augmenter:
        next(augmenter)  # what starting takes is the same for both
        before = tree_cpu_seconds(os.getpid())
        for _ in range(batches):
            next(augmenter)
        return tree_cpu_seconds(os.getpid()) - before, augmenter.stats()["checked"]
