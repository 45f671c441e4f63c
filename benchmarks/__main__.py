"""Measure detaug:
`python -m benchmarks engine|epochs|fidelity|gpu|headline|nnunet|tables|transforms`.
"""

from __future__ import annotations

import importlib
import pkgutil

import click

import benchmarks
from detaug.tools.cli.options import Commands

NAMES = sorted(module.name for module in pkgutil.iter_modules(benchmarks.__path__) if module.ispkg)


class Benchmarks(Commands):
    """Imports a benchmark, and the systems that it measures, when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return NAMES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in NAMES:
            return None
        command: click.Command = importlib.import_module(f"benchmarks.{cmd_name}.__main__").main
        return command


@click.command(cls=Benchmarks)
def main() -> None:
    """Measure detaug against what it replaces; every ratio is taken within one run."""


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
