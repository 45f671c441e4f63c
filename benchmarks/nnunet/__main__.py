"""`python -m benchmarks.nnunet`: run the rows, print one table, write JSON, draw a plot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from benchmarks.command import common_options, measure_rows
from benchmarks.nnunet.dataset import Preprocessed, dataset_folder, preprocessed
from benchmarks.nnunet.epochs import measure_epochs
from benchmarks.nnunet.ledger import measure_ledger
from benchmarks.nnunet.loaders import DETAUG, IN_2D, IN_3D, IN_3D_FOUR_CHANNELS, STOCK, Task
from benchmarks.nnunet.memory import measure_memory
from benchmarks.nnunet.speed import measure_speed
from benchmarks.nnunet.waiting import NETWORKS, measure_waiting
from benchmarks.report import Row
from detaug.bench.measuring import in_fresh_process
from detaug.cli.options import CannotRun, Command

TITLE = "detaug's loader against nnU-Net's (medians; ratios with the range over rounds)"


@dataclass(frozen=True)
class SpeedRow:
    """A row about time on one thread: the least ratio that counts as reached, and how many rounds of 25 batches."""

    name: str
    task: Task
    bound: float
    rounds: int


SPEED = {
    "3d": SpeedRow("3d_fullres, 128³, batch 2", IN_3D, 9.0, 5),
    "2d": SpeedRow("2d, 320², batch 32", IN_2D, 5.0, 7),
    "3d-4-channels": SpeedRow("3d_fullres, 128³, batch 2, 4 channels", IN_3D_FOUR_CHANNELS, 6.0, 3),
}


Measure = Callable[[SpeedRow, Preprocessed, bool], Row]


def _speed(row: SpeedRow, data: Preprocessed, quick: bool) -> Row:
    return in_fresh_process(measure_speed, row.name, row.task, data, row.bound, row.rounds, quick)


def _memory(row: SpeedRow, data: Preprocessed, quick: bool) -> Row:
    return measure_memory(row.name, row.task, data, quick)


def _waiting(network: int) -> Measure:
    return lambda row, data, quick: measure_waiting(row.name, row.task, data, network, quick)


def _ledger(system: str, row: SpeedRow, data: Preprocessed, quick: bool) -> Row:
    return measure_ledger(row.name, system, row.task, data, quick)


ROWS: dict[str, tuple[Measure, SpeedRow]] = {
    **{name: (_speed, row) for name, row in SPEED.items()},
    **{f"memory-{name}": (_memory, SPEED[name]) for name in ("3d", "2d")},
    "ledger-3d-stock": (partial(_ledger, STOCK), SPEED["3d"]),
    **{f"ledger-{name}": (partial(_ledger, DETAUG), SPEED[name]) for name in ("3d", "2d")},
    **{f"waiting-3d-{network}": (_waiting(network), SPEED["3d"]) for network in NETWORKS},
}


#: Only where they are asked for: on a CPU they take an hour.
EPOCHS = {f"epoch-{name}": SPEED[name] for name in ("3d", "2d")}


def measure(name: str, root: Path, device: str | None, quick: bool, rounds: int = 3) -> Row:
    """A row, on data that nnU-Net preprocesses below `root` where they are not there yet."""
    row = EPOCHS[name] if name in EPOCHS else ROWS[name][1]
    data = preprocessed(root, row.task.kind, row.task.configuration)
    if name in EPOCHS:
        return measure_epochs(row.name, row.task, data, device or "cpu", rounds, quick)
    return ROWS[name][0](row, data, quick)


def _has_gpu() -> bool:
    import torch

    return torch.cuda.is_available()


@click.command(cls=Command)
@common_options([*ROWS, *EPOCHS])
@click.option(
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    help="Train on it: seconds of an epoch with nnU-Net's trainer and detaug's, compiled and not; no other rows without --only.",
)
@click.option(
    "--rounds",
    default=3,
    show_default=True,
    type=click.IntRange(min=1),
    help="Of the trainings of --device.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Keep the data sets in this folder, or find them there.  [default: made anew, minutes]",
)
def main(
    names: tuple[str, ...],
    device: str | None,
    rounds: int,
    quick: bool,
    data: Path | None,
    **output: Any,
) -> None:
    """Measure `PatchSource` with detaug's transforms against nnU-Net's loader with its own, on MRI that nnU-Net planned and
    preprocessed. Ratios are taken within this run."""
    if device == "cuda" and not in_fresh_process(
        _has_gpu
    ):  # before data sets are made, which takes minutes
        raise CannotRun(
            "torch finds no GPU here, and --device cuda wants one (--device cpu --quick shows that the rows run)"
        )
    with dataset_folder(data) as root:
        chosen = names or (ROWS if device is None else EPOCHS)
        measures = ((name, partial(measure, name, root, device, quick, rounds)) for name in chosen)
        measure_rows(TITLE, measures, quick, **output)


if __name__ == "__main__":
    main()
