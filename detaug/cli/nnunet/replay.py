"""`detaug nnunet replay`: make one batch of a training again, from nothing but its folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detaug.cli.options import unreadable_told
from detaug.cli.replay import replay_options, show_replay


@click.command(short_help="Make one batch of a training again: params, fingerprints.")
@click.argument("folder", metavar="RESULTS_FOLDER", type=click.Path(path_type=Path, file_okay=False))
@click.option("--val", is_flag=True, show_default=False, help="A batch of the validation loader, not of training's.")
@replay_options
def replay(folder: Path, val: bool, **asked: Any) -> None:
    """Make one batch of a training again, as `detaug replay` does.

    RESULTS_FOLDER is the folder of a fold's checkpoints. Seed, trainer, plans and fold are the checkpoint's; the cases are
    read from nnUNet_preprocessed, and nothing is written. Where the training kept a ledger (DETAUG_LEDGER=1), the batch is
    compared with it.

    The exit status is 0 if the batch is the ledger's or there is none, 1 if not, 2 if it cannot be made.
    """
    from detaug.nnunet.remaking import training_in
    from detaug.remaking.replaying import line_of

    name = "val" if val else "train"
    with unreadable_told():
        training = training_in(folder)
        ledger = training.ledger(name)
        record = None if ledger is None else line_of(ledger, asked["epoch"], asked["step"])
        remaker = training.remaker(name)
    show_replay(remaker, record, **asked)
