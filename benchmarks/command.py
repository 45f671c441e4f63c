"""What the four commands have in common: their options, and measuring one row after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarks.environment import environment_record
from benchmarks.measure import MeasurementError
from benchmarks.plot import plot
from benchmarks.report import Row, show
from benchmarks.requirements import require
from detaug.bench.cores import CoresElsewhere
from detaug.cli.options import Target, json_option
from detaug.reports.progress import progress

F = TypeVar("F", bound=Callable[..., Any])


def common_options(rows: Iterable[str]) -> Callable[[F], F]:
    """`--only`, `--quick`, `--json` and `--plot`; the command gets `names`, `quick`, `json_target` and `plot_file`."""
    options = (
        click.option("--only", "names", multiple=True, type=click.Choice(list(rows)), help="Run this row; repeatable."),
        click.option("--quick", is_flag=True, help="Few short rounds: shows that it runs, not how fast; no verdicts."),
        json_option,
        click.option(
            "--plot",
            "plot_file",
            type=click.Path(dir_okay=False, path_type=Path),
            callback=_with_matplotlib,
            help="Draw the ratios into this file (.png, .svg, .pdf).",
        ),
    )

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def _with_matplotlib(_context: click.Context, _parameter: click.Parameter, file: Path | None) -> Path | None:
    if file is not None:
        require("matplotlib")
        if not file.resolve().parent.is_dir():
            raise click.BadParameter(f"the folder {str(file.parent)!r} does not exist")
    return file


def measure_rows(
    title: str,
    measures: Iterable[tuple[str, Callable[[], Row]]],
    quick: bool,
    json_target: Target,
    plot_file: Path | None,
) -> None:
    """Measure one row after another and show them.

    Raises:
        click.exceptions.Exit: with 1 where a row could not be measured or missed its target; `quick` rows have none.
    """
    console = json_target.console()
    environment = environment_record()
    rows: list[Row] = []
    failed = False
    planned = list(measures)
    try:
        with progress("benchmark", len(planned)) as shown:
            for name, measure in planned:
                shown.update(name)
                try:
                    elsewhere = CoresElsewhere()
                    row = measure()
                    row.cores_elsewhere = elsewhere.read()
                    rows.append(row)
                except MeasurementError as error:
                    failed = True
                    shown.say(f"{name}: not measured. {error}")
                shown.advance()
                if json_target.is_file:  # after every row: a long run that is stopped keeps what it has
                    json_target.write(_record(rows, environment))
    finally:  # one that fails does not take the others with it
        show(rows, console, title, judged=not quick)
        absent = [package for package, version in environment["packages"].items() if version is None]
        if absent:
            console.print(f"Not installed, and left out where they are peers: {', '.join(absent)}.", highlight=False)
    if not json_target.is_file:
        json_target.write(_record(rows, environment))
    if plot_file is not None and rows:
        plot(rows, title, plot_file)
    if failed or (not quick and any(check.reached is False for row in rows for check in row.checks)):
        raise click.exceptions.Exit(1)


def _record(rows: list[Row], environment: dict[str, Any]) -> dict[str, Any]:
    return {"environment": environment, "rows": [row.as_json() for row in rows]}
