"""Measure one row after another, show them, and write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.command import data_option, environment_record, quick_option
from benchmarks.nnunet.dataset import dataset_folder
from benchmarks.report import Row, show
from benchmarks.settings import Measure, Settings
from detaug.system.progress import progress, say
from detaug.tools.bench.timing import MeasurementError, Meter
from detaug.tools.cli.options import Command, console, json_option, write_json


def rows_command(title: str, rows: Mapping[str, Measure]) -> click.Command:
    """Return a command that measures these rows, or those that `--only` names."""

    @click.command(cls=Command, help=f"{title}. Ratios are taken within this run.")
    @click.option(
        "--only",
        "names",
        multiple=True,
        type=click.Choice(list(rows)),
        help="Run this row; repeatable.",
    )
    @quick_option
    @json_option
    @data_option
    def main(
        names: tuple[str, ...], quick: bool, json_file: Path | None, data: Path | None
    ) -> None:
        with dataset_folder(data) as root:
            settings = Settings(root, quick)
            chosen = {name: partial(rows[name], settings) for name in names or rows}
            measure_rows(title, chosen, quick, json_file)

    return main


def measure_rows(
    title: str, measures: Mapping[str, Callable[[], Row]], quick: bool, json_file: Path | None
) -> dict[str, Any]:
    """Measure one row after another, show them, and return them with the environment.

    Raises:
        click.exceptions.Exit: with 1 where a row could not be measured.
    """
    rows: list[Row] = []
    # Before the first row: the work tree may be changed while the rows are measured.
    result: dict[str, Any] = {"environment": environment_record(), "rows": []}
    failed = False
    try:
        with progress("benchmark", len(measures)) as shown:
            for name, measure in measures.items():
                shown.update(name)
                meter = Meter()
                try:
                    row = measure()
                except MeasurementError as error:
                    failed = True
                    say(f"{name}: not measured. {error}")
                else:
                    row.cores_elsewhere = meter.read().elsewhere
                    rows.append(row)
                    result["rows"].append(asdict(row))
                shown.advance()
                # After every row: a long run that is stopped keeps what it has.
                write_json(json_file, result)
    finally:
        # Also after an error: a row that fails does not take the others with it.
        show(rows, console(), f"{title} (medians; ratios with the range over rounds)", quick)
    if failed:
        raise click.exceptions.Exit(1)
    return result
