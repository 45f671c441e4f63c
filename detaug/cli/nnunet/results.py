"""`detaug nnunet export` and `detaug nnunet compare`: what can be done with trained models' folders."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from detaug.cli.options import CannotRun, Target, json_option

_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


@click.command(short_help="Copy a model under the name of nnU-Net's own trainer.")
@click.argument("model", type=_FOLDER)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    show_default="beside MODEL, under the stock trainer's name",
    help="The new folder.",
)
def export(model: Path, output: Path | None) -> None:
    """Copy a model for people without detaug: the same weights, under the name of nnU-Net's own trainer.

    MODEL is nnU-Net's folder DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION. All folds' checkpoints and what prediction
    needs are copied; nnUNetv2_predict with nnU-Net alone then predicts the same. The new folder's name is printed.

    The exit status is 2 if there is no such model, or nnU-Net alone could not build its network.
    """
    from detaug.nnunet.results import export as exported
    from detaug.reports.progress import progress

    with _told(), progress("nnunet export") as shown:
        folder = exported(model, output, shown)
    click.echo(folder)


@click.command(short_help="Compare two trainings: where they diverge first, and their curves.")
@click.argument("a", type=_FOLDER)
@click.argument("b", type=_FOLDER)
@click.option(
    "--plot",
    "picture",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Draw the curves into this file (PNG, SVG, PDF).",
)
@json_option
def compare(a: Path, b: Path, picture: Path | None, json_target: Target) -> None:
    """Compare two trainings, and say where they diverge first.

    A and B are folders fold_X of nnU-Net's results (or a model's folder that has one fold). What the trainings are made of
    (seed, data, plans, pipeline ...), the metrics of every epoch, and the weights are compared bit by bit, by the best
    checkpoint that both have: all entries that differ, the first epoch of each metric, the first tensor. Trainings of nnU-Net's
    own trainers have no record of seed and data.

    The exit status is that of diff: 0 if they are equal, 1 if they differ, 2 if they cannot be compared.
    """
    from detaug.nnunet.results import compare as compared
    from detaug.nnunet.results import plot

    with _told():
        found = compared(a, b)
        if picture is not None:
            plot(found, picture)
    told = json_target.console()
    for each in found.differences:
        told.print(str(each), soft_wrap=True, highlight=False, markup=False)
    verdict = f"different: first of all in {found.differences[0].name}" if found.differences else "equal"
    told.print(f"{verdict} ({found.checkpoint})", soft_wrap=True, highlight=False, markup=False)
    json_target.write(found.as_json())
    if found.differences:
        raise click.exceptions.Exit(1)


@contextmanager
def _told() -> Iterator[None]:
    """Inside, what cannot be done ends the command with one line.

    Raises:
        CannotRun: with what is wrong.
    """
    from detaug.nnunet.results import NoResults

    try:
        yield
    except NoResults as error:
        raise CannotRun(str(error)) from error
    except (OSError, ValueError) as error:  # a picture of an unknown format is a ValueError of matplotlib's
        raise CannotRun(f"{type(error).__name__}: {error}") from error
