"""`python -m benchmarks.training`: run the rows, print one table, write JSON, draw a plot."""

from __future__ import annotations

from functools import partial
from typing import Any

import click

from benchmarks.command import common_options, measure_rows
from benchmarks.training.layers import CASES, measure
from benchmarks.transforms.timing import Settings
from detaug.bench.measuring import in_fresh_process
from detaug.cli.options import Command

TITLE = "detaug's deterministic layers against PyTorch's, forward and backward (medians; ratio: detaug's time / theirs)"


@click.command(cls=Command)
@common_options(CASES)
@click.option(
    "--device",
    "devices",
    multiple=True,
    help="cpu, cuda …; may be repeated.  [default: all there are]",
)
@click.option(
    "--seconds",
    default=4.0,
    show_default=True,
    type=click.FloatRange(min=0),
    help="For each row, at least.",
)
def main(
    names: tuple[str, ...], devices: tuple[str, ...], quick: bool, seconds: float, **output: Any
) -> None:
    """Measure what each deterministic layer costs. Ratios are taken within this run."""
    settings = Settings(seconds=seconds, quick=quick)
    measures = [
        (f"{name} on {device}", partial(in_fresh_process, measure, name, device, settings))
        for device in devices or in_fresh_process(_devices)
        for name in names or CASES
    ]
    measure_rows(TITLE, measures, quick, **output)


def _devices() -> tuple[str, ...]:
    import torch

    return ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)


if __name__ == "__main__":
    main()
