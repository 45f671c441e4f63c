"""`detaug nnunet`: what goes with nnU-Net's own command line."""

from __future__ import annotations

import click

from detaug.cli.nnunet.demo import demo
from detaug.cli.nnunet.replay import replay
from detaug.cli.nnunet.results import compare, export
from detaug.cli.nnunet.verify import verify
from detaug.cli.options import CannotRun


@click.group(short_help="Trainers for nnU-Net v2, and a proof that they are reproducible.")
def nnunet() -> None:
    """Trainers for nnU-Net v2, and a proof that they are reproducible.

    \b
        export nnUNet_extTrainer=$(detaug nnunet path)
        DETAUG_SEED=1 nnUNetv2_train DATASET CONFIG FOLD -tr nnUNetTrainerDetAug
    """


@nnunet.command()
def path() -> None:
    """Print the folder that nnU-Net finds detaug's trainers in.

    For the environment variable nnUNet_extTrainer; several folders are separated as in PATH.
    """
    from pathlib import Path

    import detaug

    click.echo(Path(detaug.__file__).parent / "nnunet" / "external")


@nnunet.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
    short_help="nnUNetv2_train, with detaug's trainers, for nnU-Net 2.5 to 2.8.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="DATASET CONFIG FOLD [-tr TRAINER] ...")
def train(arguments: tuple[str, ...]) -> None:
    """Train as nnUNetv2_train does, with its own arguments (nnUNetv2_train -h), and detaug's trainers.

    For nnU-Net 2.5, 2.6 and 2.7, which do not look into the folders of nnUNet_extTrainer; this command does.
    """
    from detaug.nnunet.compatibility import train_command

    try:
        train_command(arguments)
    except LookupError as error:
        raise CannotRun(f"there is no trainer {error}: neither nnU-Net's, detaug's nor in nnUNet_extTrainer") from None


nnunet.add_command(compare)
nnunet.add_command(demo)
nnunet.add_command(export)
nnunet.add_command(replay)
nnunet.add_command(verify)
