"""Rows: what the run-time check takes of an epoch of nnU-Net's loader, and of short runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import psutil
from torch.utils.data import DataLoader

from benchmarks.engine.loaders import SmallLoader, volumes_for_monai
from benchmarks.engine.nnunet import ignore_expected_warning, numbered_loader
from benchmarks.engine.systems import STOCK, TORCH, batch_number_for, detaug, nondet
from benchmarks.nnunet.dataset import Preprocessed, dataset_folder, preprocessed
from benchmarks.nnunet.loaders import IN_3D
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import SEED, Settings
from detaug import DataLoader as OurDataLoader
from detaug import DeterministicAugmenter
from detaug.tools.bench.timing import Meter, consume, in_fresh_process, interleaved

BATCHES = 250  # nnU-Net's epoch
ROUNDS = 3
UNCHECKED = "check=False"
#: Batches of a short run, of MONAI's data set and of a small loader, and rounds.
BATCHES_OF_MONAI = 32
SMALL_BATCHES = 300
SHORT_ROUNDS = 7
#: Batches of a longer run of MONAI's data set, and rounds.
BATCHES_OF_DATA_LOADER = 320
DATA_LOADER_ROUNDS = 3


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


# --- short runs, start and end included -----------------------------------------------------------


class Run(NamedTuple):
    """Seconds of a whole run: of the clock, and of CPU time."""

    wall: float
    cpu: float


def measure_start(settings: Settings) -> Row:
    """Measure the CPU time of a program that takes one batch."""
    systems = (OURS, UNCHECKED)
    costs = _short_runs(systems, settings, partial(_small_batches, settings, 1))
    return row_of(
        "one batch from start to end, CPU time",
        "s",
        {name: [run.cpu for run in runs] for name, runs in costs.items()},
        {"workers": settings.workers},
    )


def measure_small_batches(settings: Settings) -> Row:
    """Measure the time of a run of small batches."""
    systems = (OURS, UNCHECKED, STOCK)
    costs = _short_runs(systems, settings, partial(_small_batches, settings, SMALL_BATCHES))
    return row_of(
        f"{SMALL_BATCHES} batches of 200 kB from start to end",
        "s",
        {name: [run.wall for run in runs] for name, runs in costs.items()},
        {"workers": settings.workers, "batches": SMALL_BATCHES},
        {f"{name}, CPU s": median(run.cpu for run in runs) for name, runs in costs.items()},
    )


def measure_short_epoch(settings: Settings) -> Row:
    """Measure the CPU time of a short epoch of a MONAI data set."""
    systems = (OURS, UNCHECKED, TORCH)
    costs = _short_runs(systems, settings, partial(_epoch_of_monai, settings))
    return row_of(
        f"{BATCHES_OF_MONAI} batches of MONAI's, 64³, from start to end, CPU time",
        "s",
        {name: [run.cpu for run in runs] for name, runs in costs.items()},
        {"workers": settings.workers, "batches": BATCHES_OF_MONAI},
    )


def measure_data_loader(settings: Settings) -> Row:
    """Measure the CPU time of an epoch of `detaug.DataLoader` and of torch's, by turns."""
    batches = settings.batches(BATCHES_OF_DATA_LOADER)
    runs = interleaved(
        (OURS, TORCH),
        settings.rounds(DATA_LOADER_ROUNDS),
        partial(in_fresh_process, _epoch_of_data_loader, settings, batches),
    )
    return row_of(
        f"{batches} batches of MONAI's, 64³, by DataLoader, from start to end, CPU time",
        "s",
        {name: [run.cpu for run in runs[name]] for name in runs},
        {"workers": settings.workers, "batches": batches},
    )


def _epoch_of_data_loader(settings: Settings, batches: int, name: str) -> Run:
    dataset = volumes_for_monai(2 * batches)
    processes = settings.workers.processes
    meter = Meter()
    began = time.perf_counter()
    if name == TORCH:
        for _ in DataLoader(dataset, 2, shuffle=True, num_workers=processes):
            pass
    else:
        loader: OurDataLoader[Any] = OurDataLoader(
            dataset, 2, shuffle=True, num_workers=processes, seed=SEED
        )
        for _ in loader:
            pass
        loader.close()
    return Run(time.perf_counter() - began, meter.read().cpu)


def _short_runs(
    systems: Sequence[str], settings: Settings, run: Callable[[str], Run]
) -> dict[str, list[Run]]:
    """Return the runs of each system, each in a process of its own."""
    rounds = settings.rounds(SHORT_ROUNDS)
    return interleaved(systems, rounds, partial(in_fresh_process, run))


def _small_batches(settings: Settings, batches: int, name: str) -> Run:
    loader = SmallLoader()
    meter = Meter()
    began = time.perf_counter()
    with _small_system(loader, settings, name) as iterator:
        for _ in range(batches):
            next(iterator)
    return Run(time.perf_counter() - began, meter.read().cpu)


def _small_system(
    loader: SmallLoader, settings: Settings, name: str
) -> AbstractContextManager[Iterator[Any]]:
    if name == STOCK:
        return nondet(loader, settings.workers)
    return detaug(loader, settings.workers, check=name == OURS)


def _epoch_of_monai(settings: Settings, name: str) -> Run:
    dataset = volumes_for_monai(2 * BATCHES_OF_MONAI)
    processes = settings.workers.processes
    meter = Meter()
    began = time.perf_counter()
    if name == TORCH:
        for _ in DataLoader(dataset, 2, shuffle=True, num_workers=processes):
            pass
    else:
        with DeterministicAugmenter.from_dataset(
            dataset, 2, num_processes=processes, seed=SEED, check=name == OURS
        ) as augmenter:
            for _ in augmenter:
                pass
    return Run(time.perf_counter() - began, meter.read().cpu)
