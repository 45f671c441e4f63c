"""`python -m tests.stress`: the long form, minutes; `--short` the one that the tests run."""

from __future__ import annotations

import logging
import platform
import sys
import time

import click
from rich.console import Console

from detaug.reports.progress import progress
from tests.stress.outcome import Outcome, table_of
from tests.stress.rows import long_form, short_form


@click.command()
@click.option("--short", is_flag=True, help="Seconds instead of minutes.")
@click.option("--row", "numbers", multiple=True, type=click.IntRange(min=1), help="Only this row; may be repeated.")
def main(short: bool, numbers: tuple[int, ...]) -> None:
    """Inject faults into running augmenters and compare every batch with an undisturbed run.

    Exits with 1 if any batch differs, or anything grows that must not.
    """
    logging.getLogger("detaug").setLevel(logging.ERROR)  # hundreds of deaths are meant here
    console = Console(width=None if sys.stdout.isatty() else 160)
    rows = list(short_form().values()) if short else long_form()
    outcomes: list[Outcome] = []
    chosen = [(number, row) for number, row in enumerate(rows, 1) if not numbers or number in numbers]
    with progress("stress", len(chosen)) as shown:
        for done, (number, row) in enumerate(chosen):
            shown.update(f"row {number}", done)
            began = time.monotonic()
            outcome = row()
            outcome.seconds = time.monotonic() - began
            outcomes.append(outcome)
            notes = "; ".join([*outcome.notes, *outcome.failures])
            shown.say(f"{number}/{len(rows)} {outcome.name}: {outcome.faults} faults, {outcome.batches} batches, "
                      f"{outcome.differences} differences, {outcome.seconds:.0f} s. {notes}")  # fmt: skip
    console.print(table_of(outcomes))
    console.print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}", highlight=False)
    sys.exit(0 if all(outcome.passed for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
