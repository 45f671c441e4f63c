"""`python -m benchmarks.engine`: run the rows, print one table, write JSON, draw a plot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from benchmarks.command import common_options, measure_rows
from benchmarks.engine.check_cost import measure_check_cost
from benchmarks.engine.cluster import measure_cluster_transport
from benchmarks.engine.first_batch import measure_first_batch, measure_first_nnunet_batch
from benchmarks.engine.heavy_tail import measure_heavy_tail
from benchmarks.engine.memory import measure_memory
from benchmarks.engine.nnunet import measure_nnunet
from benchmarks.engine.settings import Settings
from benchmarks.engine.transport import measure_transport, measure_transport_in_slot
from benchmarks.report import ENGINE_TITLE, Row
from detaug.cli.options import Command

ROWS: dict[str, Callable[[Settings], Row]] = {
    "transport": measure_transport,
    "transport-in-slot": measure_transport_in_slot,
    "nnunet": measure_nnunet,
    "heavy-tail": measure_heavy_tail,
    "check": measure_check_cost,
    "memory": measure_memory,
    "first-batch": measure_first_batch,
    "first-batch-nnunet": measure_first_nnunet_batch,
    "cluster-transport": measure_cluster_transport,
}


@click.command(cls=Command)
@common_options(ROWS)
@click.option(
    "--processes",
    default=2,
    show_default=True,
    type=click.IntRange(min=1),
    help="Worker processes.",
)
def main(names: tuple[str, ...], quick: bool, processes: int, **output: Any) -> None:
    """Measure detaug's engine against its peers. Ratios are taken within this run."""
    settings = Settings(processes=processes, quick=quick)
    measure_rows(
        ENGINE_TITLE,
        ((name, partial(ROWS[name], settings)) for name in names or ROWS),
        quick,
        **output,
    )


if __name__ == "__main__":
    main()
