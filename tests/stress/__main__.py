"""`python -m tests.stress`: the long form, minutes; `--short` the one that the tests run."""

from __future__ import annotations

import logging
import time

import click

from tests.stress.rows import ROWS, run_row


@click.command()
@click.option("--short", is_flag=True, help="Seconds instead of minutes.")
@click.option(
    "--row",
    "names",
    multiple=True,
    type=click.Choice(list(ROWS)),
    help="Only this row; may be repeated.",
)
def main(short: bool, names: tuple[str, ...]) -> None:
    """Inject faults into running augmenters and compare every batch with an undisturbed run.

    Ends with an AssertionError if any batch differs, or anything grows that must not.
    """
    # Hundreds of deaths are meant here.
    logging.getLogger("detaug").setLevel(logging.ERROR)
    for name in names or ROWS:
        start = time.monotonic()
        outcome = run_row(name, is_short=short)
        print(f"{outcome}; {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
