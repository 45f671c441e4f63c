"""Rows: what a ledger adds to the time of a batch of detaug's loader."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from benchmarks.calls import Stopwatch, alternate
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import Task, make_loader
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import SEED, Settings
from detaug import DeterministicAugmenter
from detaug.system.threads import keep_one_thread
from detaug.tools.bench.timing import in_fresh_process

ROUNDS = 3
#: Batches that are not timed, and those that are in a round.
WARM_UP = 4
BATCHES = 50

WITHOUT = "without one"


def measure_ledger(task: Task, data: Preprocessed, settings: Settings) -> Row:
    """Measure the CPU time of the same batches with and without a ledger, batch by batch by turns.

    Both are made in one process, on one thread.
    """
    batches = settings.batches(BATCHES)
    rounds = settings.rounds(ROUNDS)
    costs: dict[str, list[float]] = {OURS: [], WITHOUT: []}
    for epoch in range(rounds):
        for name, mean in in_fresh_process(_means, task, data, epoch, batches).items():
            costs[name].append(mean)
    return row_of(
        f"{task.name}, CPU time with a ledger",
        "ms",
        costs,
        {**task.settings(), "batches": batches},
    )


def _means(task: Task, data: Preprocessed, epoch: int, batches: int) -> dict[str, float]:
    """Return the mean CPU seconds per batch, with and without."""
    keep_one_thread()
    with TemporaryDirectory() as folder:
        ledgers = {OURS: Path(folder) / "run.jsonl", WITHOUT: None}
        augmenters = {}
        for name, ledger in ledgers.items():
            loader = make_loader(OURS, task, data)
            augmenters[name] = DeterministicAugmenter(
                loader, None, 0, seed=SEED, check=False, ledger=ledger
            )
            augmenters[name].set_epoch(epoch)
        works = {name: partial(_take, augmenter) for name, augmenter in augmenters.items()}
        timed = alternate(works, range(WARM_UP + batches))
        for augmenter in augmenters.values():
            augmenter.close()
    means = {}
    for name, batches_timed in timed.items():
        means[name] = fmean(batch.cpu for batch in batches_timed[WARM_UP:])
    return means


def _take(augmenter: DeterministicAugmenter, _: int, stopwatch: Stopwatch) -> None:
    with stopwatch:
        next(augmenter)
