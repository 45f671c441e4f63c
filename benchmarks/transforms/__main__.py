"""`python -m benchmarks transforms`: measure the rows, print one table, write JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import click

from benchmarks.command import measure_rows, row_options
from benchmarks.report import Row
from benchmarks.settings import Settings
from benchmarks.transforms import pipelines
from detaug.tools.bench.timing import in_fresh_process
from detaug.tools.cli.options import Command

TITLE = "detaug's pipelines against batchgeneratorsv2's (one thread; medians, ratios with range)"

ROWS: dict[str, Callable[[Settings], Row]] = {
    "pipeline-3d": partial(pipelines.measure, pipelines.IN_3D),
    "pipeline-2d": partial(pipelines.measure, pipelines.IN_2D),
}


@click.command(cls=Command)
@row_options(ROWS)
def main(names: tuple[str, ...], quick: bool, json_file: Path | None) -> None:
    """Measure detaug's pipelines against batchgeneratorsv2's. Ratios are taken within this run."""
    settings = Settings(quick=quick)
    chosen = {name: partial(in_fresh_process, ROWS[name], settings) for name in names or ROWS}
    measure_rows(TITLE, chosen, quick, json_file)


if __name__ == "__main__":
    main()
