"""`python -m benchmarks gpu`: what only a GPU can show, in a few minutes.

It downloads nothing. Beside torch, numpy, scipy and numba it needs the wheels that `--wheels`
fetches beforehand, on a machine with a network.
"""

from __future__ import annotations

import importlib
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, replace
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import torch
from rich.markdown import Markdown

from benchmarks.command import environment_record, quick_option
from benchmarks.gpu.bench import Bench, Child, Finding
from benchmarks.gpu.card import card
from benchmarks.gpu.trainers import prepare
from benchmarks.tables.gpus import gpu_table
from detaug.tools.cli.options import CannotRun, Command, console, json_option, write_json

#: Part, which is a module with ``run`` → its share of the minutes. What a part leaves is the next
#: one's.
SHARES = {"equal": 0.35, "why_not": 0.2, "epoch": 0.35, "copies": 0.1}

#: The part that needs no nnU-Net.
COPIES = "copies"

#: Seconds that a question of the card may take.
ASKING = 60.0


@click.command(cls=Command)
@click.option(
    "--device",
    type=click.Choice(["cuda", "cpu"]),
    default="cuda",
    show_default=True,
    help="A CPU shows that the script runs.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(0.1),
    default=8.0,
    show_default=True,
    help="For all parts together; what is not over then says so.",
)
@click.option(
    "--only",
    "names",
    multiple=True,
    type=click.Choice(list(SHARES)),
    help="Run this part; repeatable.",
)
@quick_option
@json_option
@click.option("--commit", help="Of this code, on a machine that has no git.")
@click.option(
    "--wheels",
    "wheels_folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Run nothing: fetch into this folder what a GPU's machine lacks.",
)
@click.option("--python", default="3.12", show_default=True, help="That machine's version.")
@click.option(
    "--max-size", default=64.0, show_default=True, help="MiB of all wheels.  [with --wheels]"
)
def main(
    device: str,
    minutes: float,
    names: tuple[str, ...],
    quick: bool,
    json_file: Path | None,
    commit: str | None,
    wheels_folder: Path | None,
    python: str,
    max_size: float,
) -> None:
    """Train, audit, time and copy on a GPU, and say which promises of detaug's hold there.

    Every result is printed as soon as it is there, and --json has it from then on. The exit status
    is 1 if a result contradicts what detaug promises.
    """
    if wheels_folder is not None:
        _fetch(wheels_folder, python, max_size)
        return
    shares = {name: share for name, share in SHARES.items() if name in (names or SHARES)}
    parts: dict[str, list[Finding]] = {}
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        began = time.monotonic()
        bench = Bench(device, Path(folder), began + ASKING, quick)
        record = _record(bench, commit)
        until = began
        for name, share in shares.items():
            own = Path(folder, name)
            own.mkdir()
            until += 60 * minutes * share / sum(shares.values())
            parts[name] = []
            for finding in run_part(name, replace(bench, folder=own, deadline=until)):
                parts[name].append(finding)
                click.echo(f"{name}: {finding.name}: {finding.text}")
                write_json(json_file, as_json(record, parts))
    console().print(Markdown(gpu_table([as_json(record, parts)])))
    if not all(finding.is_as_promised for findings in parts.values() for finding in findings):
        raise click.exceptions.Exit(1)


def _fetch(folder: Path, python: str, max_size: float) -> None:
    from benchmarks.gpu import wheels

    if folder.exists() and any(folder.iterdir()):
        raise CannotRun(f"{str(folder)!r} is not empty: name a new folder")
    for line in wheels.fetch(folder, python, max_size, wheels.needed_packages()):
        click.echo(line)


def _record(bench: Bench, commit: str | None) -> dict[str, Any]:
    """Return date, commit, versions, CPU and card.

    Raises:
        CannotRun: there is no card, and one is wanted.
    """
    record = environment_record()
    record.update(device=bench.device, torch_cuda=torch.version.cuda)
    record.update(card=record["cpu"], driver=None, cudnn=None)
    if commit is not None:
        record["commit"] = commit
    if bench.device == "cuda":
        cards = list(Child(bench, "card", card).findings())
        if not cards:
            raise CannotRun(
                "torch finds no GPU here; --device cpu --quick shows that the script runs"
            )
        if not cards[0].is_as_promised:
            raise CannotRun(f"the GPU cannot be asked: {cards[0].text}")
        record.update(cards[0].values)
    return record


def run_part(name: str, bench: Bench) -> Iterator[Finding]:
    """Yield the part's findings; one that fails or lacks something has a finding that says so."""
    if name != COPIES and find_spec("nnunetv2") is None:
        yield Finding(name, "not here: nnunetv2")
        return
    try:
        if name != COPIES:
            prepare(bench)
        yield from importlib.import_module(f"benchmarks.gpu.{name}").run(bench)
    except Exception as error:
        # The parts after this one must have their turn.
        text = "".join(traceback.format_exception(error))
        yield Finding(name, f"failed: {error!r}", {"error": text}, is_as_promised=False)


def as_json(record: dict[str, Any], parts: dict[str, list[Finding]]) -> dict[str, Any]:
    """Return plain data."""
    plain = {name: [asdict(finding) for finding in findings] for name, findings in parts.items()}
    return {"environment": record, "parts": plain}
