"""`detaug verify`: prove that a pipeline is deterministic, or find what is not."""

from __future__ import annotations

from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import Target, conclude, json_option


@click.command(short_help="Prove that a pipeline is deterministic, or find what is not.")
@click.argument("target", metavar="MODULE:FACTORY")
@click.option("--batches", type=click.IntRange(min=1), default=12, help="Batches that every row compares.")
@click.option("--seed", type=options.seed, help="The one seed of all rows.  [default: the augmenter's own, else 1234]")
@click.option("--processes", type=options.numbers, help="Process counts, comma-separated.  [default: 1,2,3]")
@click.option(
    "--start-method",
    "start_methods",
    type=click.Choice(["fork", "spawn", "forkserver"]),
    multiple=True,
    help="How workers start; may be given more than once.  [default: this system's, and spawn]",
)
@click.option("--hash-seeds", type=options.numbers, help="PYTHONHASHSEED of other interpreters.  [default: 1,2]")
@json_option
def verify(target: str, json_target: Target, **asked: Any) -> None:
    """Prove that a pipeline gives the same batches under all circumstances, or find what does not.

    MODULE:FACTORY, as package.module:factory or path/to/file.py:factory, is a function without arguments. It returns
    (loader, transform), where the transform may be None, a map-style data set, or a DeterministicAugmenter. Its batches
    are made with several process counts and start methods, resumed, replayed, with another clock, another PYTHONHASHSEED
    and more.

    The exit status is 0 if all are equal, 1 if the bytes of any row differ, 2 if there is no pipeline or a row could not be
    measured.
    """
    from detaug.reports.progress import progress
    from detaug.verification import verify as run

    asked["start_methods"] = asked["start_methods"] or None  # click's word for "not given" is an empty tuple
    # What is left on screen is the table; the bar is for the time until then.
    with progress("verify") as shown:
        result = run(target, progress=shown.update, **asked)
    conclude(json_target, [result], result.as_json(), result.status)
