"""`python -m benchmarks engine`: measure the rows, print one table, write JSON."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from benchmarks.command import data_option, measure_rows, row_options
from benchmarks.engine.check_cost import (
    measure_check_cost,
    measure_data_loader,
    measure_short_epoch,
    measure_small_batches,
    measure_start,
)
from benchmarks.engine.first_batch import measure_first_batch
from benchmarks.engine.heavy_tail import measure_heavy_tail
from benchmarks.engine.nnunet import measure_nnunet
from benchmarks.engine.transport import measure_transport, measure_transport_in_slot
from benchmarks.report import Row
from benchmarks.settings import WORKERS, Settings
from detaug.tools.cli.options import Command

TITLE = "detaug's engine against other systems (medians; ratios with the range over rounds)"

ROWS: dict[str, Callable[[Settings], Row]] = {
    "transport": measure_transport,
    "transport-in-slot": measure_transport_in_slot,
    "heavy-tail": measure_heavy_tail,
    "first-batch": measure_first_batch,
    "check-start": measure_start,
    "check-small-batches": measure_small_batches,
    "check-short-epoch": measure_short_epoch,
    "data-loader": measure_data_loader,
}

#: Rows on data that nnU-Net preprocesses.
ON_NNUNETS_DATA: dict[str, Callable[[Settings, Path | None], Row]] = {
    "nnunet": measure_nnunet,
    "check": measure_check_cost,
}


def measurements(settings: Settings, data: Path | None) -> dict[str, Callable[[], Row]]:
    """Return what measures each row; `data` is as for `--data`."""
    plain = {name: partial(measure, settings) for name, measure in ROWS.items()}
    on_data = {name: partial(measure, settings, data) for name, measure in ON_NNUNETS_DATA.items()}
    return {**plain, **on_data}


@click.command(cls=Command)
@row_options([*ROWS, *ON_NNUNETS_DATA])
@click.option(
    "--processes",
    default=WORKERS.processes,
    show_default=True,
    type=click.IntRange(min=1),
    help="Worker processes.",
)
@data_option
def main(
    names: tuple[str, ...],
    quick: bool,
    json_file: Path | None,
    processes: int,
    data: Path | None,
) -> None:
    """Measure detaug's engine against other systems. Ratios are taken within this run."""
    settings = Settings(workers=replace(WORKERS, processes=processes), quick=quick)
    measures = measurements(settings, data)
    chosen = {name: measures[name] for name in names or measures}
    measure_rows(TITLE, chosen, quick, json_file)


if __name__ == "__main__":
    main()
