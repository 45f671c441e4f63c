"""`python -m benchmarks nnunet`: reading and augmenting a batch in one process, on one thread."""

from __future__ import annotations

from functools import partial

from benchmarks.calls import Stopwatch, Work
from benchmarks.nnunet.dataset import Preprocessed, preprocessed
from benchmarks.nnunet.loaders import (
    GATES,
    IN_2D,
    IN_3D,
    NNUNET,
    Task,
    batch_maker,
    gated_rounds,
    gates_set,
    make_loader,
)
from benchmarks.report import OURS, Row, row_of
from benchmarks.rows import rows_command
from benchmarks.settings import Measure, Settings
from detaug.system.threads import keep_one_thread
from detaug.tools.bench.timing import in_fresh_process


def measure(task: Task, settings: Settings) -> Row:
    """Measure CPU milliseconds per batch: means over rounds of 25 batches, and their medians."""
    data = preprocessed(settings.data, task.configuration)
    cpu = in_fresh_process(_cpu_seconds, task, data, settings)
    return row_of(f"{task.name}, read and augment", "ms", cpu)


def _cpu_seconds(task: Task, data: Preprocessed, settings: Settings) -> dict[str, list[float]]:
    keep_one_thread()
    works = {system: _work(system, task, data) for system in (OURS, NNUNET)}
    return gated_rounds(works, task.rounds, settings)


def _work(system: str, task: Task, data: Preprocessed) -> Work:
    loader = make_loader(system, task, data)
    make = batch_maker(system, loader)

    def work(number: int, stopwatch: Stopwatch) -> None:
        gates = GATES[number % len(GATES)]
        with gates_set(loader.transforms, *gates), stopwatch:
            batch = make(number)
        del batch

    return work


ROWS: dict[str, Measure] = {"3d": partial(measure, IN_3D), "2d": partial(measure, IN_2D)}

main = rows_command("detaug's loader and transforms against nnU-Net's", ROWS)
