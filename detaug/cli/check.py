"""`detaug check`: test a receipt against its ledger and the pipeline."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from detaug.cli.options import Target, conclude, json_option

if TYPE_CHECKING:
    from detaug.remaking.pipelines import Remaker

_FILE = click.Path(path_type=Path, dir_okay=False, resolve_path=True)


@click.command(short_help="Test a receipt: draw batches of its ledger, make them again, compare.")
@click.argument("receipt", type=_FILE)
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option("--ledger", type=_FILE, required=True, help="The ledger of which the receipt was made.")
@click.option("--samples", type=click.IntRange(min=1), default=20, help="Batches to be made again.")
@click.option(
    "--salt", default="", show_default=False, metavar="TEXT", help="Draw other batches, which nobody can foresee."
)
@click.option("--checkpoint", "checkpoints", type=_FILE, multiple=True, help="Compare its SHA-256 with the receipt's.")
@click.option("--nnunet", nargs=3, metavar="DATASET CONFIG FOLD", help="An nnU-Net training, in place of a factory.")
@click.option("-tr", "--tr", "trainer", default="nnUNetTrainerDetAug", help="With --nnunet: the trainer's class.")
@click.option("-p", "--plans", default="nnUNetPlans", help="With --nnunet: the plans' identifier.")
@json_option
def check(
    receipt: Path,
    target: str | None,
    ledger: Path,
    samples: int,
    salt: str,
    checkpoints: tuple[Path, ...],
    nnunet: tuple[str, str, str] | None,
    trainer: str,
    plans: str,
    json_target: Target,
) -> None:
    """Test a receipt, in a minute instead of a training.

    Which batches are tested is drawn from the receipt's own digest, so that its author cannot choose them; and from --salt, a
    word of your own, so that the author cannot foresee them either. Each is made again
    here by the pipeline (MODULE:FACTORY as for `detaug verify`, or --nnunet), and compared with its line in the ledger, in all
    keys that this pipeline gives. The report says with what probability a ledger with k wrong batches would have been found.

    The exit status is 0 if all is as the receipt says, 1 if something differs, 2 if it cannot be tested here.
    """
    from detaug.ledger.receipt import read_receipt
    from detaug.nnunet.checkpoint_records import disagreements
    from detaug.remaking import checking
    from detaug.reports.progress import progress

    if (target is None) == (nnunet is None):
        raise click.UsageError("name the pipeline: MODULE:FACTORY, or --nnunet DATASET CONFIG FOLD")
    with progress("check", told=False) as shown:
        if nnunet is not None:
            from detaug.nnunet.remaking import remaker_of_training

            def remaker(header: Any) -> Remaker:
                return remaker_of_training(header, *nnunet, trainer, plans)
        else:
            from detaug.remaking.pipelines import remaker_of
            from detaug.verification.target import load_factory

            remaker = partial(remaker_of, load_factory(target or ""))
        found = checking.check(read_receipt(receipt), ledger, remaker, samples, checkpoints, disagreements, shown, salt)
    conclude(json_target, found.shown(), found.as_json(), 0 if found.ok else 1)
