"""Two runs that kept a ledger, or two trainings of nnU-Net, compared: `detaug diff`."""

from __future__ import annotations

from pathlib import Path

import click

from detaug.tools.cli.options import conclude

_RUN = click.Path(path_type=Path)


@click.command(short_help="Compare the ledgers of two runs, or two trainings of nnU-Net.")
@click.argument("a", type=_RUN)
@click.argument("b", type=_RUN)
def diff(a: Path, b: Path) -> None:
    """Compare the ledgers of two runs, or two trainings of nnU-Net.

    For two ledgers the command prints that they are equal, or the first epoch and step that differ
    and in which keys, the number of batches that differ after it, and the differences between the
    headers, the most likely cause first. Times, process numbers and restarts are not compared.

    For nnU-Net, A and B are folders fold_X of its results. The command compares what the trainings
    are made of (seed, data, plans, pipeline ...), the metrics of every epoch, and the weights of
    the best checkpoint that both have.

    A and B may come from somebody else: they are read as data, and no code in them is run.

    The exit status is 0 if all is equal, 1 if not, and 2 if A and B cannot be compared.
    """
    # If only one is a folder, comparing trainings raises an error that says what is missing.
    if a.is_dir() or b.is_dir():
        from rich.text import Text

        from detaug.nnunet.results import compare_trainings

        trainings = compare_trainings(a, b)
        conclude(map(Text, trainings.lines), int(trainings.differ))
        return
    from detaug.ledger.comparing import compare

    comparison = compare(a, b)
    conclude(comparison.render(str(a), str(b)), int(comparison.first is not None))
