"""`python -m benchmarks headline`: measure the rows that README and the pages show, and keep them.

They replace the file of this machine's CPU in `benchmarks/results`; `python -m benchmarks tables`
then writes them into the pages.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from benchmarks import transforms
from benchmarks.command import (
    RESULTS,
    data_option,
    environment_record,
    keep,
    quick_option,
    require_commit,
    require_idle,
)
from benchmarks.engine import __main__ as engine
from benchmarks.nnunet import __main__ as nnunet
from benchmarks.nnunet.dataset import dataset_folder
from benchmarks.rows import measure_rows
from benchmarks.settings import Settings
from detaug.tools.cli.options import Command, json_option

#: The rows that pages show.
ROWS = {**nnunet.ROWS, **transforms.ROWS, **engine.ROWS}
for _name in engine.NOT_SHOWN:
    del ROWS[_name]


@click.command(cls=Command)
@quick_option
@data_option
@json_option
def main(quick: bool, data: Path | None, json_file: Path | None) -> None:
    """Measure what README and the pages show, and keep it in benchmarks/results.

    It takes half an hour on two idle cores. Results are kept of a commit alone, and only where
    other programs left the cores idle; those of --quick are not kept.
    """
    if not quick:
        require_commit(environment_record())
    with dataset_folder(data) as root:
        measures = {name: partial(measure, Settings(root, quick)) for name, measure in ROWS.items()}
        title = "detaug against what it replaces"
        result = measure_rows(title, measures, quick, json_file)
    if not quick:
        require_idle({row["name"]: row["cores_elsewhere"] for row in result["rows"]})
        keep(result, RESULTS)
