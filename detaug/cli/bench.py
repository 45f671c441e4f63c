"""`detaug bench`: a pipeline under detaug, batchgenerators and torch, measured and drawn."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detaug.cli import options
from detaug.cli.options import OutputType, Target, conclude, json_option, write_output

if TYPE_CHECKING:
    from detaug.seeding.tree import Seed


@click.command(short_help="Measure a pipeline under detaug, batchgenerators and torch.")
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option("-o", "--output", type=OutputType(".png"), default="bench.png", help="The picture.")
@click.option("--processes", type=options.numbers, help="Process counts, comma-separated.  [default: 1, and all cores]")
@click.option("--seconds", type=click.FloatRange(0.1, 3600), default=1.5, help="That each run is measured for.")
@click.option("--seed", type=options.seed, default="1234", help="Of DeterministicAugmenter.")
@json_option
def bench(
    target: str | None, output: Path, processes: tuple[int, ...] | None, seconds: float, seed: Seed, json_target: Target
) -> None:
    """Measure batches per second by the number of processes, and the time of each transform.

    MODULE:FACTORY, as package.module:factory or path/to/file.py:factory, is a function without arguments, as for `detaug
    verify`; without it, the demo's patches of an MRI are measured. The same pipeline runs under DeterministicAugmenter,
    batchgenerators' NonDetMultiThreadedAugmenter and torch's DataLoader, in turn, each run in a process of its own. It
    takes about a minute on two idle cores; --seconds bounds each run.

    The exit status is 2 where detaug cannot run the pipeline; what only another system cannot run is said in the report.
    """
    if 0 in (processes or ()):
        raise click.BadParameter("a training that waits needs at least one process", param_hint="--processes")
    from rich.text import Text

    from detaug.pictures.charts import require_matplotlib
    from detaug.reports.progress import progress

    require_matplotlib()
    from detaug.bench import benching

    with progress("bench") as shown:
        result = benching.bench(benching.Settings(target, processes or (), seconds, seed), shown)
    write_output(output, benching.png(result))
    drawn = Text(f"Drawn in {output}", "dim")
    conclude(json_target, [*result.shown(), drawn], result.as_json(), 0)
