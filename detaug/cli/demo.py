"""`detaug demo`: real MRI through the stock augmenter and through detaug's, with the fingerprints side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from detaug.cli import options
from detaug.cli.options import Target, conclude, json_option

if TYPE_CHECKING:
    from detaug.seeding.tree import Seed


@click.command(short_help="Compare batches of a real MRI, run after run.")
@click.option("--batches", type=click.IntRange(min=6), default=24, help="Batches per run.")
@click.option("--patch", type=click.IntRange(8, 128), default=24, help="Edge of the cubic patches, in voxels (= mm).")
@click.option("--seed", type=options.seed, default="1234", help="The one seed of all runs.")
@json_option
def demo(batches: int, patch: int, seed: Seed, json_target: Target) -> None:
    """Run one augmentation pipeline on a real MRI again and again, and compare the batches.

    The MNI152 template (T1, 1 mm, with grey and white matter as labels) goes through batchgenerators' own 3-D
    augmentation: twice through its NonDetMultiThreadedAugmenter, then through DeterministicAugmenter in the calling process,
    in two workers, with a worker killed in mid-run, and stopped halfway and resumed with three workers. The exit status
    is 1 if any two runs of DeterministicAugmenter differ, and 2 if the MRI is missing.
    """
    from detaug.demo.run import Settings, run_all
    from detaug.reports.progress import progress

    # What is left on screen is the table; the bar is for the time until then.
    with progress("demo") as shown:
        result = run_all(Settings(batches, patch, seed), shown)
    conclude(json_target, [result], result.as_json(), result.status)
