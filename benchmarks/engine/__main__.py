"""`python -m benchmarks.engine`: run the rows, print one table, write JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click
from rich.console import Console

from benchmarks.cpu_time import CoresElsewhere
from benchmarks.engine.first_batch import measure_first_batch, measure_first_nnunet_batch
from benchmarks.engine.guard_cost import measure_guard_cost
from benchmarks.engine.heavy_tail import measure_heavy_tail, measure_heavy_tail_empty, measure_heavy_tail_small_window
from benchmarks.engine.memory import measure_memory
from benchmarks.engine.nnunet import measure_nnunet
from benchmarks.engine.seeding_cost import measure_seeding_cost
from benchmarks.engine.settings import Settings
from benchmarks.engine.transport import measure_transport, measure_transport_touched
from benchmarks.environment import environment_record
from benchmarks.measure import MeasurementError
from benchmarks.report import Row, show, write_json

ROWS: dict[str, Callable[[Settings], Row]] = {
    "transport": measure_transport,
    "transport-touched": measure_transport_touched,
    "nnunet": measure_nnunet,
    "heavy-tail": measure_heavy_tail,
    "heavy-tail-small": measure_heavy_tail_small_window,
    "heavy-tail-empty": measure_heavy_tail_empty,
    "seeding": measure_seeding_cost,
    "guard": measure_guard_cost,
    "memory": measure_memory,
    "first-batch": measure_first_batch,
    "first-batch-nnunet": measure_first_nnunet_batch,
}


@click.command()
@click.option("--only", "names", multiple=True, type=click.Choice(list(ROWS)), help="Run this row; may be repeated.")
@click.option("--quick", is_flag=True, help="Few short rounds: shows that it runs, not how fast.")
@click.option("--json", "json_path", type=click.Path(dir_okay=False, path_type=Path), help="Write the results here.")
@click.option("--processes", default=2, show_default=True, type=click.IntRange(min=1), help="Worker processes.")
def main(names: tuple[str, ...], quick: bool, json_path: Path | None, processes: int) -> None:
    """Measure detaug's engine against its peers. Ratios are taken within this run."""
    console = Console(width=None if sys.stdout.isatty() else 120)  # a file or a log has no width of its own
    settings = Settings(processes=processes, quick=quick)
    environment = environment_record()
    rows: list[Row] = []
    failed: list[str] = []
    for name in names or ROWS:
        with console.status(f"measuring {name} ..."):
            try:
                elsewhere = CoresElsewhere()
                row = ROWS[name](settings)
                row.cores_elsewhere = elsewhere.read()
                rows.append(row)
            except MeasurementError as error:
                failed.append(name)
                console.print(f"{name}: not measured. {error}", style="red", markup=False, highlight=False)
                continue
        if json_path is not None:  # after every row: a long run that is stopped keeps what it has
            write_json(rows, environment, json_path)
    show(rows, console)
    if failed or any(check.reached is False for row in rows for check in row.checks):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
