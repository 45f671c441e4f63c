"""`python -m benchmarks headline`: measure the rows that README and the pages show, and keep them.

They replace the file of this machine's CPU in `benchmarks/results`; `python -m benchmarks tables`
then writes them into the pages.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.command import as_json, data_option, environment_record, measure_rows, quick_option
from benchmarks.engine.first_batch import measure_first_batch
from benchmarks.engine.heavy_tail import measure_heavy_tail
from benchmarks.engine.nnunet import measure_nnunet
from benchmarks.engine.transport import measure_transport, measure_transport_in_slot
from benchmarks.nnunet.__main__ import measure as measure_loader
from benchmarks.nnunet.dataset import dataset_folder
from benchmarks.report import DISTURBING, Row
from benchmarks.settings import Settings
from benchmarks.tables.__main__ import RESULTS
from benchmarks.transforms import pipelines
from detaug.tools.bench.timing import in_fresh_process
from detaug.tools.cli.options import CannotRun, Command, json_option

TITLE = "detaug against what it replaces (medians; ratios with the range over rounds)"


@click.command(cls=Command)
@quick_option
@data_option
@json_option
def main(quick: bool, data: Path | None, json_file: Path | None) -> None:
    """Measure what README and the pages show, and keep it in benchmarks/results.

    It takes half an hour on two idle cores. Results are kept of a commit alone, and only where
    other programs left the cores idle; those of --quick are not kept.
    """
    record = environment_record()
    if not quick:
        require_commit(record)
    settings = Settings(quick=quick)
    with dataset_folder(data) as root:
        rows = measure_rows(TITLE, measurements(root, settings), quick, json_file)
    if not quick:
        require_idle(rows)
        keep(rows, record, RESULTS)


def measurements(root: Path, settings: Settings) -> dict[str, Callable[[], Row]]:
    """Return what measures each row; nnU-Net's data is below `root`, or is made there."""

    def of_transforms(contest: pipelines.Contest) -> Callable[[], Row]:
        return partial(in_fresh_process, pipelines.measure, contest, settings)

    return {
        "3-D loader": partial(measure_loader, "3d", root, settings),
        "2-D loader": partial(measure_loader, "2d", root, settings),
        "3-D transforms": of_transforms(pipelines.IN_3D),
        "2-D transforms": of_transforms(pipelines.IN_2D),
        "transport": partial(measure_transport, settings),
        "transport, made in the slot": partial(measure_transport_in_slot, settings),
        "nnU-Net's loader under both engines": partial(measure_nnunet, settings, root),
        "heavy tail": partial(measure_heavy_tail, settings),
        "first batch": partial(measure_first_batch, settings),
    }


def require_commit(record: dict[str, Any]) -> None:
    """Raise `CannotRun` unless the work tree is a commit's."""
    commit = record["commit"]
    if commit is None:
        raise CannotRun("results are kept with their commit, and this folder is no git work tree")
    if commit.endswith("+"):
        raise CannotRun(
            f"the work tree has changes on top of {commit[:-1]}, and results are kept with their "
            "commit: commit them first, or measure with --quick, which keeps nothing"
        )


def require_idle(rows: Sequence[Row]) -> None:
    """Raise `CannotRun` if other programs kept the cores busy during a row."""
    disturbed = [row.name for row in rows if (row.cores_elsewhere or 0.0) > DISTURBING]
    if disturbed:
        raise CannotRun(
            f"other programs ran during {'; '.join(disturbed)}: nothing is kept. "
            "Measure again on an idle machine"
        )


def keep(rows: Sequence[Row], record: dict[str, Any], folder: Path) -> None:
    """Write the file of this machine's CPU."""
    name = re.sub(r"\W+", "-", record["cpu"].lower()).strip("-")
    file = folder / f"{name}.json"
    text = json.dumps(as_json(rows, record), indent=1, ensure_ascii=False)
    file.write_text(f"{text}\n", encoding="utf-8")
    click.echo(f"kept in {file}", err=True)


if __name__ == "__main__":
    main()
