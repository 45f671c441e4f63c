"""`detaug replay`: make one batch of a run again, and see into it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from detaug.cli.options import Target, conclude, json_option

if TYPE_CHECKING:
    from detaug.ledger.header import Record
    from detaug.remaking.pipelines import Remaker


@click.command(short_help="Make one batch of a run again: params, fingerprints.")
@click.argument("run", metavar="LEDGER|FOLDER", type=click.Path(path_type=Path, resolve_path=True))
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option("--epoch", type=click.IntRange(min=0), required=True, help="Of the batch.")
@click.option("--step", type=click.IntRange(min=0), required=True, help="Of the batch, in its epoch.")
@click.option("--val", is_flag=True, show_default=False, help="With FOLDER: a batch of the validation loader.")
@json_option
def replay(run: Path, target: str | None, epoch: int, step: int, val: bool, json_target: Target) -> None:
    """Make one batch of a run again, in this process, and compare it with its line in the ledger.

    What every transform drew is shown, and a fingerprint of the arrays behind it: where these begin to differ between two
    machines or versions is what made the difference.

    Of a training of nnU-Net, FOLDER is that of a fold's checkpoints, and stands alone: seed, trainer, plans and fold are the
    checkpoint's, and the cases are read from nnUNet_preprocessed. Nothing is written. Where the training kept a ledger
    (DETAUG_LEDGER=1), the batch is compared with it.

    The exit status is 0 if the batch is the ledger's or there is none, 1 if not, 2 if it cannot be made.
    """
    from detaug.remaking.replaying import replay as make

    if run.is_dir() == (target is not None):
        raise click.UsageError("name a ledger and its MODULE:FACTORY, or a folder of nnU-Net's results alone")
    if val and not run.is_dir():
        raise click.UsageError("--val goes with a folder of nnU-Net's results")
    if target is None:
        remaker, record = _of_training(run, "val" if val else "train", epoch, step)
    else:
        remaker, record = _of_ledger(run, target, epoch, step)
    found = make(remaker, epoch, step, record)
    conclude(json_target, found.shown(), found.as_json(), 1 if found.differs else 0)


def _of_ledger(ledger: Path, target: str, epoch: int, step: int) -> tuple[Remaker, Record | None]:
    from detaug.ledger.reading import read_header
    from detaug.remaking.pipelines import check_versions, remaker_of
    from detaug.remaking.replaying import line_of
    from detaug.verification.target import load_factory

    factory = load_factory(target)
    header = read_header(ledger)
    check_versions(header)
    return remaker_of(factory, header), line_of(ledger, epoch, step)


def _of_training(folder: Path, name: str, epoch: int, step: int) -> tuple[Remaker, Record | None]:
    from detaug.nnunet.remaking import remaker_in
    from detaug.remaking.replaying import line_of

    remaker, ledger = remaker_in(folder, name)
    return remaker, None if ledger is None else line_of(ledger, epoch, step)
