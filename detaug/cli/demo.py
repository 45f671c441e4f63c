"""`detaug demo`: real MRI through the stock augmenter and through detaug's, with the fingerprints side by side."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detaug.cli.options import in_a_folder_that_exists

if TYPE_CHECKING:
    from rich.console import Console

    from detaug.demo.run import Run, Settings

#: NumPy's own limit, which the stock augmenter's seeds have to keep.
MAX_SEED = 2**32 - 1


def _process_counts(_context: click.Context, _parameter: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        counts = tuple(int(part) for part in text.split(","))
    except ValueError:
        counts = ()
    if not counts or min(counts) < 0:
        raise click.BadParameter(f"{text!r} is not a list of process counts such as 0,1,2,3")
    return counts


@click.command(short_help="Compare batches of a real MRI, run after run.")
@click.option("--batches", type=click.IntRange(min=6), default=48, help="Batches per run.")
@click.option("--patch", type=click.IntRange(8, 128), default=48, help="Edge of the cubic patches, in voxels (= mm).")
@click.option(
    "--processes", callback=_process_counts, default="0,1,2,3", help="Process counts to run with, comma-separated."
)
@click.option("--seed", type=click.IntRange(0, MAX_SEED), default=1234, help="The one seed of all runs.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    callback=in_a_folder_that_exists,
    help="Write the results to this file as well.",
)
def demo(batches: int, patch: int, processes: tuple[int, ...], seed: int, json_file: Path | None) -> None:
    """Run one augmentation pipeline on a real MRI again and again, and compare the batches.

    The MNI152 template (T1, 1 mm, with grey and white matter as labels) goes through batchgenerators' own 3-D
    augmentation: twice through its NonDetMultiThreadedAugmenter, then through DeterministicAugmenter with several
    process counts, with random delays, and with a worker killed in mid-run. The exit status is 1 if any two runs of
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
    from rich.console import Console

    from detaug.atomic_files import write_text
    from detaug.demo.report import as_json, notices, table, verdict

    settings = Settings(batches=batches, patch=patch, processes=processes, seed=seed)
    console = Console()
    began = time.perf_counter()
    runs = _run_with_progress(settings, console)
    console.print(table(runs))
    console.print(notices(runs), highlight=False)
    console.print(verdict(runs), highlight=False)
    console.print(f"[dim]{len(runs)} runs of {batches} batches in {time.perf_counter() - began:.0f} s[/]")
    if json_file is not None:
        write_text(json_file, json.dumps(as_json(runs, settings), indent=2) + "\n")
    if not all_same(runs):
        raise click.exceptions.Exit(1)


def _run_with_progress(settings: Settings, console: Console) -> list[Run]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from detaug.demo.report import describe
    from detaug.demo.run import Plan, plans, run_all

    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    # What is left on screen is the table; the bar is for the time until then.
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task("", total=settings.batches * len(plans(settings)))

        def started(plan: Plan) -> None:
            progress.update(task, description=f"{describe(plan)}, {plan.processes} processes")

        return run_all(settings, started, lambda count: progress.advance(task, count))
