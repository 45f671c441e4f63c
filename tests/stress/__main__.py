"""`python -m tests.stress`: the long form, minutes; `--short` the one that the tests run."""

from __future__ import annotations

import logging
import time

import click

from benchmarks.command import environment_record
from benchmarks.tables.cpus import product_name
from tests.stress.rows import ROWS, Outcome, run_row


@click.command()
@click.option("--short", is_flag=True, help="Seconds instead of minutes.")
@click.option(
    "--minutes",
    type=click.FloatRange(0.0),
    default=0.0,
    help="Repeat all rows until so much time has passed.",
)
@click.option(
    "--row",
    "names",
    multiple=True,
    type=click.Choice(list(ROWS)),
    help="Only this row; may be repeated.",
)
def main(short: bool, minutes: float, names: tuple[str, ...]) -> None:
    """Inject faults into running augmenters and compare every batch with an undisturbed run.

    Ends with an AssertionError if any batch differs, or anything grows that must not.
    """
    # Hundreds of deaths are meant here.
    logging.getLogger("detaug").setLevel(logging.ERROR)
    record = environment_record()
    print(
        f"commit {record['commit']}, {record['date']}, {product_name(record['cpu'])},"
        f" {record['cores']} cores, {record['system']['release']}, Python {record['python']}",
        flush=True,
    )
    start = time.monotonic()
    outcomes: list[Outcome] = []
    while True:
        for name in names or ROWS:
            row_start = time.monotonic()
            outcome = run_row(name, is_short=short)
            outcomes.append(outcome)
            print(f"{outcome}; {time.monotonic() - row_start:.0f} s", flush=True)
        elapsed = (time.monotonic() - start) / 60
        if elapsed >= minutes:
            break
    print(_summary(outcomes))
    print(f"in {elapsed:.0f} minutes")


def _summary(outcomes: list[Outcome]) -> str:
    """Return a line for each kind of fault, and one for all of them."""
    lines = []
    for name in dict.fromkeys(outcome.name for outcome in outcomes):
        of_name = [outcome for outcome in outcomes if outcome.name == name]
        lines.append(_total(name, of_name))
    lines.append(_total("in all", outcomes))
    return "\n".join(lines)


def _total(name: str, outcomes: list[Outcome]) -> str:
    faults = sum(outcome.faults for outcome in outcomes)
    batches = sum(outcome.batches for outcome in outcomes)
    return f"{name} | {faults:,} | {batches:,} | 0"


if __name__ == "__main__":
    main()
