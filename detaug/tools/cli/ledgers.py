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
        conclude(map(Text, trainings.lines), int(trainings.differ))
        return
    from detaug.ledger.comparing import compare

    comparison = compare(a, b)
    conclude(comparison.render(str(a), str(b)), int(comparison.first is not None))
