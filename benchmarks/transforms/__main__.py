"""`python -m benchmarks.transforms`: run the rows, print one table, write JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from benchmarks.cpu_time import CoresElsewhere
from benchmarks.environment import environment_record
from benchmarks.measure import MeasurementError, in_fresh_process
from benchmarks.report import Row, show, write_json
from benchmarks.transforms import others, pipelines, table
from benchmarks.transforms.timing import Settings

ROWS: dict[str, Callable[[Settings], Row]] = {
    "pipeline-3d": pipelines.measure_pipeline_3d,
    "pipeline-3d-4-channels": pipelines.measure_pipeline_3d_four_channels,
    "spatial-2-labels": table.measure_spatial_two_labels,
    "spatial-4-labels": table.measure_spatial_four_labels,
    "pipeline-2d": pipelines.measure_pipeline_2d,
    "elastic": table.measure_elastic,
    "noise": table.measure_noise,
    "gamma": table.measure_gamma,
    "blur": table.measure_blur,
    "low-resolution": table.measure_low_resolution,
    **{name.replace(", ", "-").replace(" ", "-"): others.measure(name) for name in others.OTHERS},
}


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice(list(ROWS)), help="Run this row; may be repeated.")
@click.option("--quick", is_flag=True, help="Two draws of each: shows that it runs, not how fast.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here.")
@click.option(
    "--seconds", default=10.0, show_default=True, type=click.FloatRange(min=0), help="For each row, at least."
)
def main(names: tuple[str, ...], quick: bool, json_path: Path | None, seconds: float) -> None:
    """Measure detaug's transforms against its peers', on one thread. Ratios are taken within this run."""
    console = Console(width=None if sys.stdout.isatty() else 120)  # a file or a log has no width of its own
    settings = Settings(seconds=seconds, quick=quick)
    environment = environment_record()
    rows: list[Row] = []
    failed: list[str] = []
    for name in names or ROWS:
        with console.status(f"measuring {name} ..."):
            try:
                elsewhere = CoresElsewhere()
                row = in_fresh_process(ROWS[name], settings)
                row.cores_elsewhere = elsewhere.read()
                rows.append(row)
            except MeasurementError as error:
                failed.append(name)
                console.print(f"{name}: not measured. {error}", style="red", markup=False, highlight=False)
                continue
        if json_path is not None:  # after every row: a long run that is stopped keeps what it has
            write_json(rows, environment, json_path)
    show(rows, console, title="detaug's transforms against their peers (one thread; medians, ratios with their range)")
    if failed or any(check.reached is False for row in rows for check in row.checks):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
