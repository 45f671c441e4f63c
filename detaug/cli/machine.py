"""Commands for a machine: `detaug doctor` and `detaug warmup`."""

from __future__ import annotations

import json
import time

import click

from detaug.cli import options


@click.command(short_help="Print this machine's record and what to change.")
@click.option(
    "--json", "as_json", is_flag=True, help='Print only JSON: {"environment": …, "advice": […]}.'
)
def doctor(as_json: bool) -> None:
    """Print what results on this machine depend on, with advice. There is no host or user name in it, so it can go into a bug
    report as it is.

    It shows the defaults of a fresh process; a training's own are in what detaug.training.environment() returns inside it.
    """
    from detaug.doctor.advice import advice
    from detaug.ledger.header import flat
    from detaug.training.machine import environment

    record = environment()
    found = advice(record)
    if as_json:
        click.echo(
            json.dumps(
                {"environment": record, "advice": [each._asdict() for each in found]}, indent=2
            )
        )
        return
    from rich.text import Text

    console = options.console()
    for name, value in flat(record):
        if value not in (None, {}, []):
            shown = " ".join(value) if isinstance(value, list) else str(value)
            console.print(Text.assemble((name, "bold"), "  ", shown))
    console.print()
    for each in found:
        style = "red" if each.level == "warning" else "yellow"
        console.print(Text(f"{each.level}  {each.topic}: {each.text}", style))


@click.command(short_help="Compile the transforms' kernels ahead.")
def warmup() -> None:
    """Compile the transforms' kernels, so that no training waits for it: for this machine and this version.

    Compiled code is kept in the package's own folder or, where that is read-only, in the user's cache folder; the environment
    variable NUMBA_CACHE_DIR chooses another place. Run it while building a container's image, and its processes only load.
    """
    from detaug.kernels.ahead import compile_ahead
    from detaug.kernels.cache import cache_folder
    from detaug.kernels.compiling import all_kernels

    began = time.perf_counter()
    kernels = all_kernels()
    compiled = compile_ahead(kernels, load=False)
    seconds = time.perf_counter() - began
    there = len(kernels) - compiled
    click.echo(
        f"{len(kernels)} kernels: {compiled} compiled, {there} already there, in {seconds:.1f} s"
    )
    folder = cache_folder()
    kept = (
        f"kept in {folder}"
        if folder
        else "not kept: no folder can be written to, so every process compiles its own"
    )
    click.echo(f"Compiled code is {kept}")
