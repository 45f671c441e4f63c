"""`detaug nnunet demo`: nnU-Net killed and continued on a toy data set, with the same checkpoint at the end."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detaug.cli import options
from detaug.cli.options import CannotRun, Target, conclude, json_option

if TYPE_CHECKING:
    from detaug.seeding.tree import Seed


@click.command(short_help="Train nnU-Net on a toy data set, kill it, continue it, compare.")
@click.option("--seed", type=options.seed, default="1234", help="Of the data set and of the trainings.")
@json_option
def demo(seed: Seed, json_target: Target) -> None:
    """Show on a toy data set that a training which is killed and continued ends with the same checkpoint.

    Five cases of 32³ voxels are made, nnU-Net plans and preprocesses them, and nnUNetTrainerDetAug trains on the CPU for two
    short epochs, with a narrow network: once straight through, and once with another number of workers, killed (SIGKILL) in
    the second epoch and continued with --c. The two checkpoint_final.pth are compared byte for byte. It takes about two
    minutes on two idle cores; afterwards nothing is left of it.

    The exit status is 0 if they are equal, 1 if not, and 2 if nnU-Net is missing or the first training fails.
    """
    if importlib.util.find_spec("nnunetv2") is None:
        raise CannotRun("nnU-Net is not installed: pip install 'detaug[nnunet]'")
    from detaug.demo.toy_training import train_and_compare
    from detaug.reports.progress import progress

    with progress("nnunet demo") as shown, tempfile.TemporaryDirectory(prefix="detaug-nnunet-demo-") as folder:
        result = train_and_compare(Path(folder), seed, shown)
    conclude(json_target, [result], result.as_json(), result.status)
