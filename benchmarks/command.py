"""What the four commands have in common: their options, and measuring one row after another."""

from __future__ import annotations

import datetime
import os
import subprocess
import time
from collections.abc import Callable, Iterable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import click
import psutil

from benchmarks.report import Row, show
from detaug.bench.measuring import MeasurementError
from detaug.cli.options import console, json_option, write_json
from detaug.reports.progress import progress, say

F = TypeVar("F", bound=Callable[..., Any])


def common_options(rows: Iterable[str]) -> Callable[[F], F]:
    """`--only`, `--quick` and `--json`; the command gets `names`, `quick` and `json_file`."""
    options = (
        click.option(
            "--only",
            "names",
            multiple=True,
            type=click.Choice(list(rows)),
            help="Run this row; repeatable.",
        ),
        click.option(
            "--quick",
            is_flag=True,
            help="Few short rounds: shows that it runs, not how fast; no verdicts.",
        ),
        json_option,
    )

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def measure_rows(
    title: str,
    measures: Iterable[tuple[str, Callable[[], Row]]],
    quick: bool,
    json_file: Path | None,
    keep: Callable[[list[Row]], None] | None = None,
) -> None:
    """Measure one row after another and show them, and give them to `keep`.

    Raises:
        click.exceptions.Exit: with 1 where a row could not be measured or missed its target; `quick` rows have none.
    """
    output = console()
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
                    say(f"{name}: not measured. {error}")
                shown.advance()
                # after every row: a long run that is stopped keeps what it has
                write_json(json_file, _record(rows, environment))
    finally:  # one that fails does not take the others with it
        show(rows, output, title, judged=not quick)
        absent = [
            package for package, version in environment["packages"].items() if version is None
        ]
        if absent:
            output.print(
                f"Not installed, and left out where they are peers: {', '.join(absent)}.",
                highlight=False,
            )
    if keep is not None:
        keep(rows)
    if failed or (
        not quick and any(check.reached is False for row in rows for check in row.checks)
    ):
        raise click.exceptions.Exit(1)


def silence() -> None:
    """In a fresh process: nothing of what a talkative peer prints is kept. An error reaches the caller with its traceback."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)


def environment_record() -> dict[str, Any]:
    """The versions and the hardware that a result belongs to; no host name, no paths."""
    from detaug.training.machine import environment

    found = environment()
    peers = {
        name: version(name) if find_spec(name) else None
        for name in ("torchio", "grain", "blosc2", "nilearn")
    }
    # What a distribution adds to the kernel's number says nothing about speed.
    system = {**found["system"], "release": found["system"]["release"].partition("-")[0]}
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
        "python": found["python"]["version"],
        "packages": {"detaug": found["detaug"]["version"], **found["packages"], **peers},
        "system": system,
        "cpu": found["cpu"]["model"],
        "cores": found["cpu"]["usable_cores"],
    }


def _commit() -> str | None:
    """Of the work tree that is measured, with a plus sign where it has changes; None outside of one."""
    git = ["git", "-C", os.path.dirname(__file__)]
    found = subprocess.run(
        [*git, "rev-parse", "--short=10", "HEAD"], capture_output=True, text=True, check=False
    )
    if found.returncode:
        return None
    changed = subprocess.run(
        [*git, "diff", "--quiet", "HEAD"], capture_output=True, check=False
    ).returncode
    return found.stdout.strip() + "+" * bool(changed)


def _record(rows: list[Row], environment: dict[str, Any]) -> dict[str, Any]:
    return {"environment": environment, "rows": [row.as_json() for row in rows]}


class CoresElsewhere:
    """How many cores the processes that are not ours kept busy since this object was made.

    On a shared machine it says how far a wall-clock time can be trusted.
    """

    def __init__(self) -> None:
        self._wall, self._all, self._ours = time.monotonic(), _busy_seconds(), _own_seconds()

    def read(self) -> float:
        """A mean over the time since then."""
        foreign = (_busy_seconds() - self._all) - (_own_seconds() - self._ours)
        return max(0.0, foreign / (time.monotonic() - self._wall))


def _busy_seconds() -> float:
    """CPU seconds of all processes on all cores."""
    times = psutil.cpu_times()
    return float(times.user + times.nice + times.system)


def _own_seconds() -> float:
    """This process and all that it started and that have ended."""
    return sum(os.times()[:4])
