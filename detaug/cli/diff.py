"""`detaug diff`: where two runs begin to differ, and what may be why."""

from __future__ import annotations

from pathlib import Path

import click

from detaug.cli.options import CannotRun, OutputType, Target, conclude, json_option

_RUN = click.Path(path_type=Path)


@click.command(short_help="Compare the ledgers of two runs, or two trainings of nnU-Net.")
@click.argument("a", type=_RUN)
@click.argument("b", type=_RUN)
@click.option("--plot", type=OutputType(".png"), help="Of two trainings of nnU-Net: draw their curves into this file.")
@json_option
def diff(a: Path, b: Path, plot: Path | None, json_target: Target) -> None:
    """Compare the ledgers of two runs: equal, or the first epoch and step that differ, in which keys, how many batches differ
    after it, and what differs in the headers, the most likely cause first.

    Times, process numbers and restarts do not count.

    Of nnU-Net, A and B are folders fold_X of its results (or a model's folder that has one fold). What the trainings are made of
    (seed, data, plans, pipeline ...), the metrics of every epoch, and the weights are compared bit by bit, by the best
    checkpoint that both have: all entries that differ, the first epoch of each metric, the first tensor. Trainings of
    nnU-Net's own trainers have no record of seed and data.

    The exit status is 0 if all is equal, 1 if not, 2 if there is nothing that can be compared.
    """
    from detaug.ledger.comparing import compare
    from detaug.reports.progress import progress

    if a.is_dir() or b.is_dir():
        _of_trainings(a, b, plot, json_target)
        return
    if plot is not None:
        raise click.UsageError("--plot draws the curves of two folders of nnU-Net's results, and a ledger has none")
    with progress("diff", told=False) as shown:
        shown.update("comparing batches")
        found = compare(a, b, shown.advance)
    if found.is_mute:
        raise CannotRun("the batches have no bytes that are the same everywhere, so that there is nothing to compare")
    conclude(json_target, found.shown(str(a), str(b)), found.as_json(), 0 if found.is_equal else 1)


def _of_trainings(a: Path, b: Path, picture: Path | None, json_target: Target) -> None:
    from rich.text import Text

    from detaug.nnunet import results

    found = results.compare(a, b)
    if picture is not None:
        results.plot(found, picture)
    told = {"equal": not found.differences, "checkpoint": found.checkpoint, "differences": found.differences}
    conclude(json_target, map(Text, found.lines()), told, 1 if found.differences else 0)
