"""What the commands have in common: their options, and measuring one row after another."""

from __future__ import annotations

import datetime
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click

from benchmarks.report import Row, show
from detaug.system.progress import progress, say
from detaug.tools.bench.timing import MeasurementError, Meter
from detaug.tools.cli.options import console, json_option, write_json
from detaug.training.machine import environment

F = TypeVar("F", bound=Callable[..., Any])

#: Packages that change a benchmark's figures, beside those that `environment` lists.
PACKAGES = ("blosc2", "nilearn")

quick_option = click.option(
    "--quick", is_flag=True, help="Few short rounds: shows that it runs, not how fast."
)

data_option = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data sets in this folder, or find them there.  [default: made now, minutes]",
)


def row_options(rows: Iterable[str]) -> Callable[[F], F]:
    """Add `--only`, `--quick` and `--json`; the command gets `names`, `quick` and `json_file`."""
    only = click.option(
        "--only",
        "names",
        multiple=True,
        type=click.Choice(list(rows)),
        help="Run this row; repeatable.",
    )

    def decorate(function: F) -> F:
        for option in (json_option, quick_option, only):
            function = option(function)
        return function

    return decorate


def measure_rows(
    title: str,
    measures: Mapping[str, Callable[[], Row]],
    quick: bool,
    json_file: Path | None,
) -> list[Row]:
    """Measure one row after another, show them, and return them.

    Raises:
        click.exceptions.Exit: with 1 where a row could not be measured.
    """
    # Before the first row: the work tree may be changed while the rows are measured.
    record = environment_record()
    rows: list[Row] = []
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
                shown.advance()
                # After every row: a long run that is stopped keeps what it has.
                write_json(json_file, as_json(rows, record))
    finally:
        # Also after an error: a row that fails does not take the others with it.
        show(rows, console(), title, quick)
    if failed:
        raise click.exceptions.Exit(1)
    return rows


def as_json(rows: Iterable[Row], record: dict[str, Any]) -> dict[str, Any]:
    """Return rows with the environment that they were measured in."""
    return {"environment": record, "rows": [row.as_json() for row in rows]}


def silence() -> None:
    """In a fresh process: drop what a talkative system prints. Errors reach the caller anyway."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def environment_record() -> dict[str, Any]:
    """Return date, commit, versions and hardware; no host name and no paths."""
    machine = environment()
    packages = {"detaug": machine["detaug"]["version"], **machine["packages"]}
    for name in PACKAGES:
        packages[name] = version(name) if find_spec(name) else None
    # What a distribution adds to the kernel's number says nothing about speed.
    release = machine["system"]["release"].partition("-")[0]
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": commit(),
        "python": machine["python"]["version"],
        "packages": packages,
        "system": {**machine["system"], "release": release},
        "cpu": machine["cpu"]["model"],
        "cores": machine["cpu"]["usable_cores"],
    }


def commit() -> str | None:
    """Return the work tree's commit, with ``+`` where it has changes; None outside of one."""
    if shutil.which("git") is None:
        return None
    head = _git("rev-parse", "--short=10", "HEAD")
    if head.returncode:
        return None
    name = head.stdout.strip()
    if _git("diff", "--quiet", "HEAD").returncode:
        name += "+"
    return name


def _git(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["git", "-C", os.path.dirname(__file__), *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
