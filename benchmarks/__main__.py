"""Measure detaug: `python -m benchmarks NAME`."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import click

from detaug.tools.cli.options import CannotRun, Commands

#: Command → the module that has its ``main``.
MODULES = {
    "engine": "benchmarks.engine.__main__",
    "epochs": "benchmarks.epochs",
    "fidelity": "benchmarks.fidelity.__main__",
    "gpu": "benchmarks.gpu.__main__",
    "headline": "benchmarks.headline",
    "nnunet": "benchmarks.nnunet.__main__",
    "tables": "benchmarks.tables.__main__",
    "transforms": "benchmarks.transforms",
}

#: What the commands need, but for those that need none of it.
NEEDED = ("nnunetv2", "nilearn")
WITHOUT = ("gpu", "tables")


class Benchmarks(Commands):
    """Imports a benchmark, and the systems that it measures, when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in MODULES:
            return None
        # Before anything is imported, which takes seconds.
        missing = [package for package in NEEDED if find_spec(package) is None]
        if missing and cmd_name not in WITHOUT:
            names = ", ".join(missing)
            raise CannotRun(f"the benchmarks need {names}: pip install '.[benchmarks]'")
        command: click.Command = importlib.import_module(MODULES[cmd_name]).main
        return command


@click.command(cls=Benchmarks)
def main() -> None:
    """Measure detaug against what it replaces; every ratio is taken within one run."""


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
