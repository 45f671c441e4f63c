"""`detaug nnunet verify`: the determinism test for a user's own data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import Target, conclude, json_option


def _new_folder(_context: click.Context, _parameter: click.Parameter, folder: Path | None) -> Path | None:
    if folder is not None and folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise click.BadParameter(f"{str(folder)!r} is there already, and not an empty folder")
    return folder


@click.command(short_help="Train your own data three times for a few steps; compare the checkpoints.")
@click.argument("dataset")
@click.argument("configuration", metavar="CONFIG")
@click.option("-f", "--fold", type=options.fold, default="0", help="Fold: a number, or 'all'.")
@click.option("-tr", "--tr", "trainer", default="nnUNetTrainerDetAug", help="The trainer's class.")
@click.option("-p", "--plans", default="nnUNetPlans", help="The plans' identifier.")
@click.option(
    "-device",
    "--device",
    type=click.Choice(["cpu", "cuda"]),
    default=None,
    show_default="cuda where there is a GPU",
    help="What to train on.",
)
@click.option("--seed", type=options.seed, envvar="DETAUG_SEED", default="1234", help="Of all trainings.")
@click.option("--epochs", type=click.IntRange(2), default=2, help="Epochs of a training.")
@click.option("--iterations", type=click.IntRange(1), default=23, help="Training batches of an epoch.")
@click.option("--validation-iterations", type=click.IntRange(1), default=2, help="Validation batches of an epoch.")
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    callback=_new_folder,
    help="Leave logs (with tracebacks), traces and checkpoints in this folder, which is new or empty.",
)
@json_option
def verify(device: str | None, keep: Path | None, json_target: Target, **asked: Any) -> None:
    """Prove that a training on your own preprocessed data is reproducible, or find where it diverges.

    DATASET (a number, or DatasetXXX_Name) is trained in the configuration CONFIG three times for a few steps, each
    time in new processes and with separate results: straight through with two processes that load data, straight
    through with none, and killed in the middle of an epoch and resumed, with other numbers of processes again. The
    three checkpoint_final.pth are compared byte for byte. A difference is reported with its origin: initial
    weights, data, a step's outcome, the weights that it writes, resuming, or bookkeeping.

    The report says how rare a branch of the transforms may be to have been taken in one of the batches; --iterations
    gives more of them.

    Nothing is written to nnUNet_results, and to nnUNet_preprocessed only what nnU-Net itself writes when it first
    trains (splits_final.json).

    The exit status is 0 if all are equal, 1 if not, and 2 if there is no such training.
    """
    from rich.text import Text

    from detaug.nnunet.verification.settings import Settings
    from detaug.nnunet.verification.wrong_use import checked
    from detaug.reports.progress import progress

    settings = checked(Settings(**asked, device=device or ""))  # before torch is imported, which takes seconds
    from detaug.nnunet.verification.verifying import verify_training

    with progress("nnunet verify") as shown:
        result = verify_training(settings, keep, shown)
    where = [] if keep is None else [Text(f"Logs, traces and checkpoints are in {keep}", "dim")]
    conclude(json_target, [result, *where], result.as_json(), result.status)
