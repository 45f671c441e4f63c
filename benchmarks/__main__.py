"""`python -m benchmarks engine|fidelity|nnunet|nodes|tables|training|transforms`: one command line for all rows."""

from __future__ import annotations

import importlib
import pkgutil

import click

import benchmarks
from detaug.cli.options import Commands

_NAMES = sorted(found.name for found in pkgutil.iter_modules(benchmarks.__path__) if found.ispkg)


class _Imported(Commands):
    """Imports a benchmark, and the peers that it measures, when it is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return _NAMES

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _NAMES:
            return None
        command: click.Command = importlib.import_module(f"benchmarks.{cmd_name}.__main__").main
        return command


@click.command(cls=_Imported)
def main() -> None:
    """Measure detaug against its peers; every ratio is taken within one run."""


if __name__ == "__main__":
    main(prog_name="python -m benchmarks")
