"""Two runs that kept a ledger, or two trainings of nnU-Net, compared: `detaug diff`."""

from __future__ import annotations

from pathlib import Path

import click

from detaug.cli.options import OutputType, conclude

_RUN = click.Path(path_type=Path)


@click.command(short_help="Compare the ledgers of two runs, or two trainings of nnU-Net.")
@click.argument("a", type=_RUN)
@click.argument("b", type=_RUN)
@click.option(
    "--plot",
    type=OutputType(".png"),
    help="Of two trainings of nnU-Net: draw their curves into this file.",
)
def diff(a: Path, b: Path, plot: Path | None) -> None:
    """Compare the ledgers of two runs: equal, or the first epoch and step that differ, in which
    keys, how many batches differ after it, and what differs in the headers, the most likely cause
    first. Times, process numbers and restarts do not count.

    Of nnU-Net, A and B are folders fold_X of its results. What the trainings are made of (seed,
    data, plans, pipeline ...), the metrics of every epoch, and the weights are compared, by the
    best checkpoint that both have.

    Both may be somebody else's: they are read as data, and none of their code is run.

    The exit status is 0 if all is equal, 1 if not, 2 if there is nothing that can be compared.
    """
    if a.is_dir() or b.is_dir():
        from rich.text import Text

        from detaug.nnunet.results import compare_trainings

        trainings = compare_trainings(a, b)
        if plot is not None:
            from detaug.pictures.curves import draw_curves

            draw_curves(trainings.checkpoint, *trainings.curves, plot)
        conclude(map(Text, trainings.lines), int(trainings.differ))
        return
    if plot is not None:
        raise click.UsageError(
            "--plot draws the curves of two folders of nnU-Net's results, and a ledger has none"
        )
    from detaug.ledger.comparing import compare

    comparison = compare(a, b)
    conclude(comparison.shown(str(a), str(b)), int(comparison.first is not None))
