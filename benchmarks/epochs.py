"""`python -m benchmarks epochs`: epochs with a simulated step, under nnU-Net's augmenter and
detaug's.

First the command measures how long nnU-Net's loader and detaug's take for batches on one core. Then
workers sleep for these times, and the training loop sleeps for the step, so that twelve workers can
be compared on a machine with two cores. Augmenters, processes and the batches they send are real.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.command import (
    RESULTS,
    data_option,
    environment_record,
    keep,
    quick_option,
    require_commit,
    require_idle,
)
from benchmarks.engine.loaders import STOCK, SYSTEMS
from benchmarks.nnunet.dataset import Preprocessed, dataset_folder, preprocessed
from benchmarks.nnunet.loaders import IN_3D, NNUNET, batch_maker, make_loader
from benchmarks.report import OURS
from benchmarks.tables.studies import epochs_text
from detaug.system.progress import progress
from detaug.tools.bench.systems import Workers
from detaug.tools.bench.timing import Consumption, Meter, consume, in_fresh_process
from detaug.tools.cli.options import Command, console

#: Seconds of a training step. nnU-Net's issue 3063 reports 0.131 on an A100.
STEPS = (0.090, 0.131, 0.145)
WORKERS = (2, 4, 8, 12)
LOADERS = (NNUNET, OURS)

#: Batches whose times are measured, and seconds of each training loop.
BATCHES = 100
SECONDS = 20.0


class SleepingLoader:
    """An endless loader that gives ready batches after the times that real ones took.

    It draws the times from NumPy's global generator, which both augmenters seed in every worker.
    """

    def __init__(self, seconds: Sequence[float]) -> None:
        self.seconds = np.asarray(seconds)
        edges = (IN_3D.batch_size, 1, *IN_3D.patch)
        self.image = np.ones(edges, np.float32)
        self.labels = np.ones(edges, np.int16)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        # Sleeping takes no core: so twelve workers run on two.
        time.sleep(np.random.choice(self.seconds))
        return {"data": self.image.copy(), "target": self.labels.copy()}

    def set_thread_id(self, number: int) -> None:
        """Do nothing: batchgenerators tells every worker its number."""


@click.command(cls=Command)
@quick_option
@data_option
def main(quick: bool, data: Path | None) -> None:
    """Measure epochs with a simulated step, and keep them in benchmarks/results.

    It takes a quarter of an hour on two idle cores. Results of --quick are shown and not kept.
    """
    record = environment_record()
    if not quick:
        require_commit(record)
    batches = BATCHES
    duration = SECONDS
    if quick:
        batches = 8
        duration = 1.0
    rows = []
    meter = Meter()
    with dataset_folder(data) as root, progress("loops", len(STEPS) * len(WORKERS)) as shown:
        cases = preprocessed(root, IN_3D.configuration)
        seconds = {
            loader: in_fresh_process(batch_seconds, loader, cases, batches) for loader in LOADERS
        }
        for step, workers in itertools.product(STEPS, WORKERS):
            shown.update(f"a step of {1e3 * step:.0f} ms, {workers} workers")
            rows.append(measure(seconds, step, workers, duration))
            shown.advance()
    elsewhere = meter.read().elsewhere
    result = {"environment": record, "rows": rows, "batch_seconds": seconds}
    console().print(epochs_text([result]), markup=False)
    if not quick:
        require_idle({"the loops": elsewhere})
        keep(result, RESULTS, "epochs-")


def batch_seconds(system: str, data: Preprocessed, count: int) -> list[float]:
    """Return the seconds that a loader with its transforms takes for each of `count` batches."""
    make = batch_maker(system, make_loader(system, IN_3D, data))
    # The first batch opens files, compiles kernels and chooses algorithms.
    make(0)
    seconds = []
    for number in range(1, count + 1):
        began = time.process_time()
        make(number)
        seconds.append(time.process_time() - began)
    return seconds


def measure(
    seconds: dict[str, list[float]], step: float, workers: int, duration: float
) -> dict[str, Any]:
    """Return a row: seconds per step, and of these waiting, for each loader."""
    systems = {}
    for loader in LOADERS:
        run = in_fresh_process(_train, loader, seconds[loader], step, workers, duration)
        systems[loader] = {"per_step": run.seconds_per_batch, "waiting": run.waited / run.batches}
    return {"step": step, "workers": workers, "systems": systems}


def _train(
    loader: str, seconds: list[float], step: float, workers: int, duration: float
) -> Consumption:
    """Run a training loop over a loader's batches, under the augmenter of its trainer."""
    augmenter = STOCK
    # As many batches as nnU-Net's trainer lets wait.
    cached = max(6, workers // 2)
    options: dict[str, Any] = {}
    if loader == OURS:
        augmenter = OURS
        # detaug's trainers let as many more wait.
        cached = cached * 3 // 2
        options["stateless"] = True

    def train_step(_batch: object) -> None:
        time.sleep(step)

    start: Any = SYSTEMS[augmenter]
    with start(SleepingLoader(seconds), Workers(workers, cached), **options) as batches:
        # What was made while the workers started is used up before the clock starts.
        return consume(batches, train_step, warm_up=3 * workers, seconds=duration)
