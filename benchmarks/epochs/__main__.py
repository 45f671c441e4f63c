"""`python -m benchmarks epochs`: epochs with a simulated step, under nnU-Net's augmenter and
detaug's.

First the command measures how long nnU-Net's loader and detaug's take for batches on one core. Then
workers sleep for these times, and the training loop sleeps for the step, so that twelve workers can
be compared on a machine with two cores. Augmenters, processes and the batches they send are real.
"""

from __future__ import annotations

import itertools
import json
import re
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.command import data_option, environment_record, quick_option
from benchmarks.engine.systems import STOCK, SYSTEMS
from benchmarks.headline.__main__ import require_commit
from benchmarks.nnunet.dataset import Preprocessed, dataset_folder, preprocessed
from benchmarks.nnunet.loaders import IN_3D, NNUNET, batch_maker, make_loader
from benchmarks.report import DISTURBING, OURS
from benchmarks.tables.__main__ import RESULTS
from benchmarks.tables.studies import epochs_text
from detaug.system.progress import progress
from detaug.tools.bench.systems import Workers
from detaug.tools.bench.timing import Consumption, Meter, consume, in_fresh_process
from detaug.tools.cli.options import CannotRun, Command, console

#: Seconds of a training step. nnU-Net's issue 3063 reports 0.131 on an A100.
STEPS = (0.090, 0.131, 0.145)
WORKERS = (2, 4, 8, 12)
LOADERS = (NNUNET, OURS)

#: Batches whose times are measured, and seconds of each training loop.
BATCHES = 100
SECONDS = 20.0


def num_cached(workers: int) -> int:
    """Return how many batches nnU-Net's trainer lets wait for this many workers."""
    return max(6, workers // 2)


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
    rows = []
    meter = Meter()
    with dataset_folder(data) as root, progress("loops", len(STEPS) * len(WORKERS)) as shown:
        folder = preprocessed(root, IN_3D.configuration)
        seconds = {
            loader: in_fresh_process(batch_seconds, loader, folder, 8 if quick else BATCHES)
            for loader in LOADERS
        }
        for step, workers in itertools.product(STEPS, WORKERS):
            shown.update(f"a step of {1e3 * step:.0f} ms, {workers} workers")
            rows.append(measure(seconds, step, workers, 1.0 if quick else SECONDS))
            shown.advance()
    elsewhere = meter.read().elsewhere
    result = {"environment": record, "rows": rows, "batch_seconds": seconds}
    console().print(epochs_text([result]), markup=False)
    if quick:
        return
    if elsewhere > DISTURBING:
        raise CannotRun(
            f"other programs kept {elsewhere:.1f} cores busy: nothing is kept. "
            "Measure again on an idle machine"
        )
    name = re.sub(r"\W+", "-", record["cpu"].lower()).strip("-")
    text = json.dumps(result, indent=1, ensure_ascii=False)
    (RESULTS / f"epochs-{name}.json").write_text(f"{text}\n", encoding="utf-8")


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
        run = in_fresh_process(partial(_train, loader, seconds[loader], step, workers, duration))
        systems[loader] = {
            "per_step": run.seconds_per_batch,
            "waiting": run.waited / run.batches,
        }
    return {"step": step, "workers": workers, "systems": systems}


def _train(
    loader: str, seconds: list[float], step: float, workers: int, duration: float
) -> Consumption:
    """Run a training loop over a loader's batches, under the augmenter of its trainer."""
    cached = num_cached(workers)
    augmenter = STOCK
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


if __name__ == "__main__":
    main()
