"""Row: what the run-time check takes of an epoch on nnU-Net's own loader."""

from __future__ import annotations

import logging
import os
import time
from statistics import median
from typing import Any, NamedTuple

import psutil

from benchmarks.engine.nnunet import BATCH_SIZE, PATCH, NnunetTask, nnunet_task, tree_cpu_seconds
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SEED, batch_number_for
from benchmarks.report import Check, Row
from detaug.bench.measuring import in_fresh_process, interleaved

BATCHES, ROUNDS = 250, 3  # nnU-Net's epoch
ALLOWED = 1.015

_EVERY = {"checked": {}, "not checked": {"check": False}}


def measure_check_cost(settings: Settings) -> Row:
    """CPU seconds of all processes, with and without, by turns: the share of the second epoch of 250 batches, and what the
    first one has besides, once in a run: the interpreter with another hash seed, and the allowance."""
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    with nnunet_task() as task:
        runs = interleaved(
            tuple(_EVERY),
            rounds,
            lambda name: in_fresh_process(_epochs, task, name, settings, batches),
        )
    pairs = list(zip(runs["checked"], runs["not checked"], strict=True))
    ratios = [ours.later / theirs.later for ours, theirs in pairs]
    once = [ours.first - theirs.first for ours, theirs in pairs]
    plain = median(epochs.later for epochs in runs["not checked"])
    return Row(
        name="the run-time check, an epoch of nnU-Net's 3-D loader",
        unit="CPU s per epoch",
        ours=median(epochs.later for epochs in runs["checked"]),
        checks=[
            Check("check=False", plain, median(ratios), (min(ratios), max(ratios)), "<=", ALLOWED),
            Check("once in a run, s", None, median(once), (min(once), max(once)), "<="),
        ],
        repeats=rounds,
        settings={
            "batches": batches,
            "patch": PATCH,
            "batch_size": BATCH_SIZE,
            "processes": settings.processes,
        },
        details={"checks": [epochs.checks for epochs in runs["checked"]]},
    )


class _Epochs(NamedTuple):
    """CPU seconds of the first epoch and of the second, and checks made."""

    first: float
    later: float
    checks: int


def _epochs(task: NnunetTask, name: str, settings: Settings, batches: int) -> _Epochs:
    from detaug import DeterministicAugmenter

    logging.getLogger("detaug").addFilter(
        lambda record: "benchmark=True" not in record.getMessage()
    )  # as it should
    loader = task.loader(batch_number_for("detaug"))
    options: dict[str, Any] = _EVERY[name]
    with DeterministicAugmenter(
        loader, None, settings.processes, settings.num_cached, seed=SEED, **options
    ) as augmenter:
        next(augmenter)  # what starting takes is the same for both
        children = _running_children()
        seconds = []
        for _ in range(2):
            before = tree_cpu_seconds(os.getpid())
            for _ in range(batches):
                next(augmenter)
            while _running_children() > children:  # the other interpreter belongs to this epoch
                time.sleep(0.1)
            seconds.append(tree_cpu_seconds(os.getpid()) - before)
        return _Epochs(*seconds, augmenter.stats()["checked"])


def _running_children() -> int:
    return sum(child.status() != psutil.STATUS_ZOMBIE for child in psutil.Process().children())
