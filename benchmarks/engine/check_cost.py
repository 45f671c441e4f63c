"""Row: what the run-time check takes of an epoch on nnU-Net's own loader."""

from __future__ import annotations

import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import psutil

from benchmarks.engine.nnunet import ignore_expected_warning, numbered_loader
from benchmarks.engine.systems import batch_number_for, detaug
from benchmarks.nnunet.dataset import Preprocessed, dataset_folder, preprocessed
from benchmarks.nnunet.loaders import IN_3D
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import Settings
from detaug import DeterministicAugmenter
from detaug.bench.measuring import Meter, consume, in_fresh_process, interleaved

BATCHES = 250  # nnU-Net's epoch
ROUNDS = 3
UNCHECKED = "check=False"


class Epochs(NamedTuple):
    """CPU seconds of the first epoch and of the second."""

    first: float
    second: float


def measure_check_cost(settings: Settings, data: Path | None) -> Row:
    """Measure the CPU seconds of all processes, with and without the check, by turns.

    The second epoch has the check's share of a long training; the first one has also what is done
    once in a training, by an interpreter with another hash seed.
    """
    batches = settings.batches(BATCHES)
    with dataset_folder(data) as root:
        cases = preprocessed(root, IN_3D.configuration)
        runs = interleaved(
            (OURS, UNCHECKED),
            settings.rounds(ROUNDS),
            partial(in_fresh_process, _epochs, cases, settings, batches),
        )
    once = [
        checked.first - unchecked.first
        for checked, unchecked in zip(runs[OURS], runs[UNCHECKED], strict=True)
    ]
    return row_of(
        "the run-time check, CPU time of an epoch of nnU-Net's 3-D loader",
        "s",
        {name: [epochs.second for epochs in runs[name]] for name in runs},
        {"workers": settings.workers, "batches": batches, **IN_3D.settings()},
        {"once in a training, CPU s": median(once)},
    )


def _epochs(cases: Preprocessed, settings: Settings, batches: int, name: str) -> Epochs:
    ignore_expected_warning()
    loader = numbered_loader(cases, batch_number_for(OURS))
    options = {} if name == OURS else {"check": False}
    with detaug(loader, settings.workers, **options) as augmenter:
        next(augmenter)  # what starting takes is the same for both
        children = _running_children()
        first = _epoch(augmenter, batches, children)
        second = _epoch(augmenter, batches, children)
    return Epochs(first, second)


def _epoch(augmenter: DeterministicAugmenter, batches: int, children: int) -> float:
    meter = Meter()
    consume(augmenter, warm_up=0, least=batches)
    # An interpreter that the check started in this epoch belongs to it.
    while _running_children() > children:
        time.sleep(0.1)
    return meter.read().cpu


def _running_children() -> int:
    children = psutil.Process().children()
    return sum(child.status() != psutil.STATUS_ZOMBIE for child in children)
