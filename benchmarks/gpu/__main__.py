"""`python -m benchmarks gpu`: what only a GPU can show, in a few minutes.

It downloads nothing. Beside torch, numpy, scipy and numba it needs the wheels that `--wheels`
fetches beforehand, on a machine with a network.
"""

from __future__ import annotations

import importlib
import itertools
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
from rich import box
from rich.markup import escape
from rich.table import Table

from benchmarks.command import quick_option
from benchmarks.gpu import children, machine, standins, wheels
from benchmarks.gpu.findings import Bench, Finding, NotHere, require
from detaug.tools.cli.options import CannotRun, Command, console, json_option, write_json


@dataclass(frozen=True)
class Part:
    """A part of the run.

    Attributes:
        name: of its module, which has ``run``.
        share: of the minutes. What a part leaves is the next one's.
    """

    name: str
    share: float


PARTS = (Part("equal", 0.35), Part("why_not", 0.2), Part("epoch", 0.35), Part("copies", 0.1))

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
    type=click.Choice([part.name for part in PARTS]),
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
        if wheels_folder.exists() and any(wheels_folder.iterdir()):
            raise CannotRun(f"{str(wheels_folder)!r} is not empty: name a new folder")
        for line in wheels.fetch(wheels_folder, python, max_size).lines():
            click.echo(line)
        return
    chosen = [part for part in PARTS if not names or part.name in names]
    findings = Findings(device, json_file, commit)
    with TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        findings.ask(Path(folder))
        began = time.monotonic()
        total = sum(part.share for part in chosen)
        until = 0.0
        for part in chosen:
            until += part.share / total
            own = Path(folder) / part.name
            own.mkdir()
            deadline = began + 60 * minutes * until
            for finding in run_part(part, Bench(device, own, deadline, quick)):
                findings.add(part.name, finding)
    findings.show()
    if not findings.are_as_promised:
        raise click.exceptions.Exit(1)


def run_part(part: Part, bench: Bench) -> Iterator[Finding]:
    """Yield the part's findings; one that fails or lacks something has a finding that says so."""
    try:
        if part.name != "copies":
            prepare(bench)
        module = importlib.import_module(f"benchmarks.gpu.{part.name}")
        yield from module.run(bench)
    except NotHere as missing:
        yield Finding(part.name, f"not here: {missing}")
    except Exception as error:
        # The parts after this one must have their turn.
        text = "".join(traceback.format_exception(error))
        yield Finding(part.name, f"failed: {error!r}", {"error": text}, is_as_promised=False)


def prepare(bench: Bench) -> None:
    """Import nnU-Net once for all children, and compile detaug's kernels if they are not yet.

    What nnU-Net's training imports and does not use may have stand-ins.

    Raises:
        NotHere: nnU-Net is not installed.
    """
    require("nnunetv2")
    standins.put_in()
    importlib.import_module("nnunetv2.run.run_training")
    importlib.import_module("detaug.nnunet.trainers")
    log = bench.folder / "kernels.txt"
    children.result_in_child(compile_kernels, log=log, seconds=bench.seconds_left)


def compile_kernels(send: children.Send) -> None:
    """Compile the kernels of nnU-Net's default pipelines, and send how many axes they have."""
    from detaug.nnunet import training_transforms

    for axes in (3, 2):
        scales = [[1.0] * axes, [0.5] * axes]
        pipeline = training_transforms(
            (32,) * axes, (-0.5, 0.5), scales, tuple(range(axes)), do_dummy_2d=False
        )
        pipeline.warm_up()
    send(axes)


class Findings:
    """All findings so far, on the terminal and in a file."""

    def __init__(self, device: str, json_file: Path | None, commit: str | None) -> None:
        self.device = device
        self.json_file = json_file
        self.environment = machine.record(device)
        if commit is not None:
            self.environment["commit"] = commit
        self.parts: dict[str, list[Finding]] = {}

    def ask(self, folder: Path) -> None:
        """Ask for the card.

        Raises:
            CannotRun: there is none, and one is wanted.
        """
        log = folder / "card.txt"
        card = children.result_in_child(machine.card, log=log, seconds=ASKING)
        if card is None and self.device == "cuda":
            raise CannotRun(
                "torch finds no GPU here; --device cpu --quick shows that the script runs"
            )
        if self.device == "cuda":
            self.environment.update(card)

    def add(self, part: str, finding: Finding) -> None:
        """Print a finding, and write all of them."""
        self.parts.setdefault(part, []).append(finding)
        click.echo(f"{part}: {finding.name}: {finding.text}")
        write_json(self.json_file, self.as_json())

    @property
    def are_as_promised(self) -> bool:
        """Whether none contradicts what detaug promises."""
        findings = itertools.chain.from_iterable(self.parts.values())
        return all(finding.is_as_promised for finding in findings)

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        parts = {name: list(map(asdict, part)) for name, part in self.parts.items()}
        return {"environment": self.environment, "parts": parts}

    def show(self) -> None:
        """Print the table."""
        title = self.environment.get("card", self.environment["cpu"])
        table = Table(title=f"detaug on {title}", box=box.SIMPLE_HEAD, pad_edge=False)
        for heading in ("part", "what", "result"):
            table.add_column(heading, overflow="fold")
        for name, part in self.parts.items():
            for finding in part:
                style = None if finding.is_as_promised else "bold red"
                table.add_row(name, escape(finding.name), escape(finding.text), style=style)
            table.add_section()
        console().print(table)


if __name__ == "__main__":
    main()
