"""Commands for a machine: `detaug doctor` and `detaug warmup`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from detaug.cli.options import Target

if TYPE_CHECKING:
    from detaug.doctor.advice import Advice


@click.command(short_help="Print this machine's record and what to change.")
@click.option("--json", "as_json", is_flag=True, help='Print only JSON: {"environment": …, "advice": […]}.')
@click.option("--strict", is_flag=True, help="Exit with status 1 where there is a warning.")
def doctor(as_json: bool, strict: bool) -> None:
    """Print what results on this machine depend on, with advice. There is no host or user name in it, so it can go into a bug
    report as it is.

    It shows the defaults of a fresh process; a training's own are in what detaug.training.environment() returns inside it.
    """
    from detaug.doctor.advice import advice
    from detaug.doctor.machine import environment

    record = environment()
    found = advice(record)
    if as_json:
        click.echo(json.dumps({"environment": record, "advice": [each._asdict() for each in found]}, indent=2))
    else:
        _print(record, found)
    if strict and any(each.level == "warning" for each in found):
        raise click.exceptions.Exit(1)


def _print(record: dict[str, Any], found: list[Advice]) -> None:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="bold")
    table.add_column(overflow="fold")
    for part, values in record.items():
        separator = "\n" if part in ("switches", "variables") else ", "
        table.add_row(part, separator.join(_values(values)) or "none")
    table.add_row()
    for each in found:
        table.add_row(each.level, f"{each.topic}: {each.text}", style="red" if each.level == "warning" else "yellow")
    Target().console().print(table, markup=False)


def _values(part: Any) -> Iterator[str]:
    """A part of the record as ``name value``."""
    if isinstance(part, dict):
        for name, value in part.items():
            shown = value if isinstance(value, list) else [value]
            found = " ".join(" ".join(_values(each)) if isinstance(each, dict) else str(each) for each in shown)
            if value not in (None, []):
                yield f"{name} {found}"
    for each in part if isinstance(part, list) else ():
        yield " ".join(_values(each))


@click.command(short_help="Compile the transforms' kernels ahead.")
def warmup() -> None:
    """Compile the transforms' kernels, so that no training waits for it: for this machine and this version.

    Compiled code is kept in the package's own folder or, where that is read-only, in the user's cache folder; the environment
    variable NUMBA_CACHE_DIR chooses another place. Run it while building a container's image, and its processes only load.
    """
    from detaug.kernels.ahead import compile_ahead
    from detaug.kernels.cache import cache_folder
    from detaug.kernels.compiling import all_kernels

    console = Target().console()
    began = time.perf_counter()
    kernels = all_kernels()
    compiled = compile_ahead(kernels, load=False)
    seconds = time.perf_counter() - began
    console.print(
        f"{len(kernels)} kernels: {compiled} compiled, {len(kernels) - compiled} already there, in {seconds:.1f} s",
        highlight=False,
    )
    folder = cache_folder()
    kept = f"kept in {folder}" if folder else "not kept: no folder can be written to, so every process compiles its own"
    console.print(f"Compiled code is {kept}", highlight=False, soft_wrap=True)
