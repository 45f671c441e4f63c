"""`python -m benchmarks headline`: measure the front page's rows on this machine, and keep them in `benchmarks/results`."""

from __future__ import annotations

import json
import re
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.command import environment_record, measure_rows
from benchmarks.engine import transport
from benchmarks.engine.settings import Settings as EngineSettings
from benchmarks.nnunet.__main__ import measure as measure_loader
from benchmarks.nnunet.dataset import dataset_folder
from benchmarks.report import Row
from benchmarks.tables.__main__ import RESULTS
from benchmarks.transforms import pipelines
from benchmarks.transforms.timing import Settings as TransformSettings
from detaug.bench.measuring import in_fresh_process
from detaug.cli.options import Command, json_option

#: Systems of the transport rows; the others would take twice the time.
SYSTEMS = ("detaug", "NonDetMultiThreadedAugmenter", "torch")


@click.command(cls=Command)
@click.option(
    "--quick", is_flag=True, help="Few short rounds, which are not kept: shows that it runs."
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data set in this folder, or find it there.",
)
@json_option
def main(quick: bool, data: Path | None, json_file: Path | None) -> None:
    """Measure nnU-Net's loaders, transport and transforms on this machine, and keep the results; ten minutes on two idle cores.

    The rows replace those of this CPU in benchmarks/results. `python -m benchmarks tables` then writes them into the pages.
    """
    engine, transforms = EngineSettings(quick=quick), TransformSettings(seconds=10, quick=quick)
    with dataset_folder(data) as root:
        measure_rows(
            "detaug against what it replaces (medians; ratios with the range over rounds)",
            [
                ("3-D loader", partial(measure_loader, "3d", root, None, quick)),
                ("2-D loader", partial(measure_loader, "2d", root, None, quick)),
                ("transport", partial(transport.measure_transport, engine, SYSTEMS)),
                (
                    "transport, made in the slot",
                    partial(transport.measure_transport_in_slot, engine, SYSTEMS),
                ),
                (
                    "3-D transforms",
                    partial(in_fresh_process, pipelines.measure_pipeline_3d, transforms),
                ),
                (
                    "2-D transforms",
                    partial(in_fresh_process, pipelines.measure_pipeline_2d, transforms),
                ),
            ],
            quick,
            json_file,
            None if quick else partial(keep, environment=environment_record(), folder=RESULTS),
        )


def keep(rows: list[Row], environment: dict[str, Any], folder: Path) -> None:
    """Write rows into the file of this machine's CPU, in place of those of the same names."""
    file = folder / (re.sub(r"\W+", "-", environment["cpu"].lower()).strip("-") + ".json")
    before = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {"rows": []}
    new = {row.name: {**row.as_json(), "date": environment["date"]} for row in rows}
    for each in new.values():
        del each["details"]
    others = [each for each in before["rows"] if each["name"] not in new]
    found = {**before, "environment": environment, "rows": [*new.values(), *others]}
    file.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    click.echo(f"kept in {file}", err=True)


if __name__ == "__main__":
    main()
