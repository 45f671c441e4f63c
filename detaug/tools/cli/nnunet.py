"""`detaug nnunet`: commands that go with nnU-Net's own command line."""

from __future__ import annotations

import importlib.resources
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detaug.tools.cli import options
from detaug.tools.cli.options import conclude

if TYPE_CHECKING:
    from rich.console import RenderableType


@click.group(short_help="Trainers for nnU-Net v2, and a proof that they are reproducible.")
def nnunet() -> None:
    """Trainers for nnU-Net v2, and a proof that they are reproducible.

    \b
        export nnUNet_extTrainer=$(detaug nnunet path)
        DETAUG_SEED=1 nnUNetv2_train DATASET CONFIG FOLD -tr nnUNetTrainerDetAug
    """


@nnunet.command(short_help="Print the folder of detaug's trainers.")
def path() -> None:
    """Print the folder of detaug's trainers, for the environment variable nnUNet_extTrainer.

    nnU-Net finds trainers in the folders that this variable names, when it trains and when it
    predicts; several are separated as in PATH.
    """
    click.echo(str(importlib.resources.files("detaug.nnunet") / "external"))


def _new_folder(
    _context: click.Context, _parameter: click.Parameter, folder: Path | None
) -> Path | None:
    """Return the option's folder if it is new or empty.

    Raises:
        click.BadParameter: it is something else.
    """
    if folder is None or not folder.exists():
        return folder
    if not folder.is_dir() or any(folder.iterdir()):
        raise click.BadParameter(f"{str(folder)!r} exists, and is not an empty folder")
    return folder


@nnunet.command(
    short_help="Train your own data three times for a few steps; compare the checkpoints."
)
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
    show_default="cuda if there is a GPU",
    help="What to train on.",
)
@click.option(
    "--seed", type=options.seed, envvar="DETAUG_SEED", default="1234", help="Seed of all trainings."
)
@click.option(
    "--iterations", type=click.IntRange(1), default=23, help="Training batches in an epoch."
)
@click.option(
    "--keep",
    type=click.Path(path_type=Path),
    callback=_new_folder,
    help=(
        "Keep logs (with tracebacks), traces and checkpoints in this folder, which must be new or"
        " empty."
    ),
)
def verify(device: str | None, keep: Path | None, **asked: Any) -> None:
    """Prove that a training on your own preprocessed data is reproducible, or find where it
    diverges.

    The command trains on DATASET (a number, or DatasetXXX_Name) in the configuration CONFIG three
    times for a few steps: straight through with two processes that load data, straight through with
    none, and killed in the middle of an epoch and resumed. It compares the three
    checkpoint_final.pth byte for byte. If they differ, it names the first step that differs, and
    what differs in it.

    Nothing is written to nnUNet_results, and to nnUNet_preprocessed only what nnU-Net itself writes
    when it first trains (splits_final.json). Preprocessed cases are unpickled, as nnU-Net does it,
    which runs code that is in them.

    The exit status is 0 if all are equal, 1 if not, and 2 if there is no such training.
    """
    from rich.text import Text

    from detaug.nnunet.verification.settings import Settings, checked
    from detaug.system.progress import progress

    # A mistake is reported before torch is imported, which takes seconds.
    settings = checked(Settings(**asked, device=device or ""))
    from detaug.nnunet.verification.verifying import verify_training

    with progress("nnunet verify") as bar:
        result = verify_training(settings, keep, bar)
    lines: list[RenderableType] = [result]
    if keep is not None:
        lines.append(Text(f"Logs, traces and checkpoints are in {keep}", "dim"))
    conclude(lines, result.status)


@nnunet.command(short_help="Copy a model under the name of nnU-Net's own trainer.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The new folder.  [default: next to MODEL, under the stock trainer's name]",
)
def export(model: Path, output: Path | None) -> None:
    """Copy a model for people without detaug: the same weights, under the name of nnU-Net's own
    trainer.

    MODEL is nnU-Net's folder DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION. All folds' checkpoints
    and what prediction needs are copied; nnUNetv2_predict with nnU-Net alone then predicts the
    same. The new folder's name is printed.

    The exit status is 2 if there is no such model, or nnU-Net alone could not build its network.
    """
    from detaug.nnunet import results

    click.echo(results.export(model, output))


@nnunet.command(short_help="Train nnU-Net on a toy data set, kill it, continue it, compare.")
def demo() -> None:
    """Show on a toy data set that a training that is killed and continued ends with the same
    checkpoint.

    nnUNetTrainerDetAug trains on the CPU for two short epochs: once straight through, and once with
    another number of workers, killed (SIGKILL) in the second epoch and continued with --c. The two
    checkpoint_final.pth are compared byte for byte. It takes about two minutes on two idle cores,
    and leaves no files.

    The exit status is 0 if they are equal, 1 if not, and 2 if nnU-Net is missing or the first
    training fails.
    """
    from detaug.nnunet.compatibility import require_nnunet

    require_nnunet()
    from detaug.demo.nnunet import train_and_compare
    from detaug.system.progress import progress

    with (
        progress("nnunet demo") as bar,
        tempfile.TemporaryDirectory(prefix="detaug-nnunet-demo-") as folder,
    ):
        result = train_and_compare(Path(folder), bar)
    conclude([result], result.status)
