"""`python -m tests.stress`: the long form, minutes; `--short` the one that the tests run."""

from __future__ import annotations

import logging
import platform
import sys
import time

import click

from tests.stress.rows import ROWS


@click.command()
@click.option("--short", is_flag=True, help="Seconds instead of minutes.")
@click.option("--row", "names", multiple=True, type=click.Choice(list(ROWS)), help="Only this row; may be repeated.")
def main(short: bool, names: tuple[str, ...]) -> None:
    """Inject faults into running augmenters and compare every batch with an undisturbed run.

    Exits with 1 if any batch differs, or anything grows that must not.
    """
    logging.getLogger("detaug").setLevel(logging.ERROR)  # hundreds of deaths are meant here
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    outcomes = []
    for name in names or ROWS:
        began = time.monotonic()
        outcomes.append(ROWS[name](short))
        print(f"{outcomes[-1]}, {time.monotonic() - began:.0f} s", flush=True)
    faults, batches, differences = (
        sum(getattr(outcome, what) for outcome in outcomes) for what in ("faults", "batches", "differences")
    )
    print(f"in all: {faults} faults, {batches} batches, {differences} differences")
    sys.exit(0 if all(outcome.passed for outcome in outcomes) else 1)


if __name__ == "__main__":
    main()
