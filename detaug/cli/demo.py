"""`detaug demo`: real MRI through the stock augmenter and through detaug's, with the fingerprints side by side."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from detaug.cli.options import SeedType, Target, json_option

if TYPE_CHECKING:
    from detaug.demo.run import Run, Settings
    from detaug.seeding.tree import Seed


def _process_counts(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 0:
        raise click.BadParameter(f"{text!r} is not a list of process counts such as 0,1,2,3")
    return counts


@click.command(short_help="Compare batches of a real MRI, run after run.")
@click.option("--batches", type=click.IntRange(min=6), default=24, help="Batches per run.")
@click.option("--patch", type=click.IntRange(8, 128), default=24, help="Edge of the cubic patches, in voxels (= mm).")
@click.option(
    "--processes", callback=_process_counts, default="0,1,2,3", help="Process counts to run with, comma-separated."
)
@click.option("--seed", type=SeedType(), default=1234, help="The one seed of all runs.")
@json_option
def demo(batches: int, patch: int, processes: tuple[int, ...], seed: Seed, json_target: Target) -> None:
    """Run one augmentation pipeline on a real MRI again and again, and compare the batches.

    The MNI152 template (T1, 1 mm, with grey and white matter as labels) goes through batchgenerators' own 3-D
    augmentation: twice through its NonDetMultiThreadedAugmenter, then through DeterministicAugmenter with several
    process counts, with random delays, and with a worker killed in mid-run; and, to compare the speed, through
    DeterministicAugmenter with detaug's own transforms of the same kinds. The exit status is 1 if any two runs of
    DeterministicAugmenter differ.
    """
    try:
        from detaug.demo.mri import load_cases
        from detaug.demo.run import Settings, all_same

        load_cases()
    except ModuleNotFoundError as error:
        if "detaug[demo]" not in str(error):
            raise
        raise click.ClickException(str(error)) from error
    from detaug.demo.report import as_json, notices, table, verdict

    settings = Settings(batches=batches, patch=patch, processes=processes, seed=seed)
    console = json_target.console()
    began = time.perf_counter()
    runs = _run_with_progress(settings)
    console.print(table(runs))
    console.print(notices(runs), highlight=False)
    console.print(verdict(runs), highlight=False)
    console.print(f"[dim]{len(runs)} runs of {batches} batches in {time.perf_counter() - began:.0f} s[/]")
    json_target.write(as_json(runs, settings))
    if not all_same(runs):
        raise click.exceptions.Exit(1)


def _run_with_progress(settings: Settings) -> list[Run]:
    from detaug.demo.report import describe
    from detaug.demo.run import Plan, plans, run_all
    from detaug.reports.progress import progress

    # What is left on screen is the table; the bar is for the time until then.
    with progress("demo", settings.batches * len(plans(settings))) as shown:

        def started(plan: Plan) -> None:
            shown.update(f"{describe(plan)}, {plan.processes} processes")

        return run_all(settings, started, shown.advance)
