"""`detaug nnunet export`: a model for people without detaug."""

from __future__ import annotations

from pathlib import Path

import click


@click.command(short_help="Copy a model under the name of nnU-Net's own trainer.")
@click.argument("model", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The new folder.  [default: beside MODEL, under the stock trainer's name]",
)
def export(model: Path, output: Path | None) -> None:
    """Copy a model for people without detaug: the same weights, under the name of nnU-Net's own trainer.

    MODEL is nnU-Net's folder DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION. All folds' checkpoints and what prediction
    needs are copied; nnUNetv2_predict with nnU-Net alone then predicts the same. The new folder's name is printed.

    The exit status is 2 if there is no such model, or nnU-Net alone could not build its network.
    """
    from detaug.nnunet import results
    from detaug.reports.progress import progress

    with progress("nnunet export") as shown:
        folder = results.export(model, output, shown)
    click.echo(folder)
