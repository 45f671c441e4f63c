"""`detaug nnunet`: what goes with nnU-Net's own command line."""

from __future__ import annotations

import click

from detaug.cli.nnunet_demo import demo
from detaug.cli.nnunet_replay import replay
from detaug.cli.nnunet_verify import verify


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


nnunet.add_command(demo)
nnunet.add_command(replay)
nnunet.add_command(verify)
