"""`python -m benchmarks nnunet`: measure the rows, print one table, write JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from benchmarks.command import data_option, measure_rows, row_options
from benchmarks.nnunet.dataset import Preprocessed, dataset_folder, preprocessed
from benchmarks.nnunet.ledger import measure_ledger
from benchmarks.nnunet.loaders import IN_2D, IN_3D, Task
from benchmarks.nnunet.speed import measure_speed
from benchmarks.report import Row
from benchmarks.settings import Settings
from detaug.tools.bench.timing import in_fresh_process
from detaug.tools.cli.options import Command

TITLE = "detaug's loader against nnU-Net's (medians; ratios with the range over rounds)"

Measure = Callable[[Task, Preprocessed, Settings], Row]


def _speed(task: Task, data: Preprocessed, settings: Settings) -> Row:
    return in_fresh_process(measure_speed, task, data, settings)


ROWS: dict[str, tuple[Measure, Task]] = {
    "3d": (_speed, IN_3D),
    "2d": (_speed, IN_2D),
    "ledger-3d": (measure_ledger, IN_3D),
    "ledger-2d": (measure_ledger, IN_2D),
}


def measure(name: str, root: Path, settings: Settings) -> Row:
    """Measure a row, on data that nnU-Net preprocesses below `root` if it is not there yet."""
    measure_task, task = ROWS[name]
    return measure_task(task, preprocessed(root, task.configuration), settings)


@click.command(cls=Command)
@row_options(ROWS)
@data_option
def main(names: tuple[str, ...], quick: bool, json_file: Path | None, data: Path | None) -> None:
    """Measure detaug's loader and transforms against nnU-Net's loader with its own.

    The data is MRI that nnU-Net planned and preprocessed. Ratios are taken within this run.
    """
    settings = Settings(quick=quick)
    with dataset_folder(data) as root:
        chosen = {name: partial(measure, name, root, settings) for name in names or ROWS}
        measure_rows(TITLE, chosen, quick, json_file)


if __name__ == "__main__":
    main()
