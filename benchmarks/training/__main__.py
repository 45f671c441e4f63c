"""`python -m benchmarks.training`: run the rows, print one table, write JSON."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from benchmarks.cpu_time import CoresElsewhere
from benchmarks.environment import environment_record
from benchmarks.measure import MeasurementError, in_fresh_process
from benchmarks.report import Row, show, write_json
from benchmarks.training.layers import CASES, measure
from benchmarks.transforms.timing import Settings

TITLE = "detaug's deterministic layers against PyTorch's, forward and backward (medians; ratio: detaug's time / theirs)"


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice(list(CASES)), help="Run this row; may be repeated.")
@click.option("--device", "devices", multiple=True, help="cpu, cuda …; may be repeated.  [default: all there are]")
@click.option("--quick", is_flag=True, help="Two draws of each: shows that it runs, not how fast.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here.")
@click.option("--seconds", default=4.0, show_default=True, type=click.FloatRange(min=0), help="For each row, at least.")
def main(names: tuple[str, ...], devices: tuple[str, ...], quick: bool, json_path: Path | None, seconds: float) -> None:
    """Measure what each deterministic layer costs. Ratios are taken within this run."""
    console = Console(width=None if sys.stdout.isatty() else 120)  # a file or a log has no width of its own
    settings = Settings(seconds=seconds, quick=quick)
    environment = environment_record()
    rows: list[Row] = []
    failed: list[str] = []
    for device in devices or in_fresh_process(_devices):
        for name in names or CASES:
            with console.status(f"measuring {name} on {device} ..."):
                try:
                    elsewhere = CoresElsewhere()
                    row = in_fresh_process(measure, name, device, settings)
                    row.cores_elsewhere = elsewhere.read()
                    rows.append(row)
                except MeasurementError as error:
                    failed.append(name)
                    console.print(f"{name}: not measured. {error}", style="red", markup=False, highlight=False)
                    continue
            if json_path is not None:  # after every row: a long run that is stopped keeps what it has
                write_json(rows, environment, json_path)
    show(rows, console, title=TITLE)
    if failed or any(check.reached is False for row in rows for check in row.checks):
        raise SystemExit(1)


def _devices() -> tuple[str, ...]:
    import torch

    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


if __name__ == "__main__":
    main()
