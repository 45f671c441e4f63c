"""`detaug nnunet`: what goes with nnU-Net's own command line."""

from __future__ import annotations

from argparse import ArgumentParser
from traceback import print_exc, walk_tb

import click

from detaug.cli.nnunet.demo import demo
from detaug.cli.nnunet.export import export
from detaug.cli.nnunet.verify import verify
from detaug.cli.options import CannotRun

_DEFAULT = """\
detaug nnunet train takes the arguments of nnUNetv2_train, below. Without -tr it trains what that trains, nnU-Net's own
nnUNetTrainer, which is not reproducible: name nnUNetTrainerDetAug, or nnUNetTrainerDeterministic.
"""


@click.group(short_help="Trainers for nnU-Net v2, and a proof that they are reproducible.")
def nnunet() -> None:
    """Trainers for nnU-Net v2, and a proof that they are reproducible.

    \b
        export nnUNet_extTrainer=$(detaug nnunet path)
        DETAUG_SEED=1 nnUNetv2_train DATASET CONFIG FOLD -tr nnUNetTrainerDetAug
    """


@nnunet.command()
def path() -> None:
    """Print the folder that nnUNetv2_train finds detaug's trainers in; `detaug nnunet train` needs no such variable.

    For the environment variable nnUNet_extTrainer; several folders are separated as in PATH.
    """
    from pathlib import Path

    import detaug

    click.echo(Path(detaug.__file__).parent / "nnunet" / "external")


@nnunet.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False, "help_option_names": []},
    short_help="nnUNetv2_train, with detaug's trainers.",
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="DATASET CONFIG FOLD [-tr TRAINER] ...")
def train(arguments: tuple[str, ...]) -> None:
    """Train as nnUNetv2_train does, with its own arguments (nnUNetv2_train -h), and detaug's trainers.

    It finds them without nnUNet_extTrainer, behind those in the folders that this variable names.
    """
    from detaug.errors import BatchError, UnusableError
    from detaug.nnunet.compatibility import train_command
    from detaug.nnunet.verification.wrong_use import planned

    parser = ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    for name in ("dataset", "configuration", "fold"):
        parser.add_argument(name, nargs="?")
    parser.add_argument("-p", default="nnUNetPlans")
    asked, _ = parser.parse_known_args(arguments)
    helped = {"-h", "--help"} & set(arguments)
    if helped:
        click.echo(_DEFAULT)
    try:
        if asked.fold is not None and not helped:
            planned(asked.dataset, asked.configuration, asked.p)
        train_command(arguments)
    except SystemExit as leaving:  # argparse's: after its help, or what is wrong with the arguments
        raise click.exceptions.Exit(leaving.code if isinstance(leaving.code, int) else 2) from None
    except (OSError, RuntimeError, TypeError, ValueError) as error:
        raised_in = [frame.f_globals.get("__name__", "") for frame, _ in walk_tb(error.__traceback__)][-1]
        if isinstance(error, UnusableError) or (raised_in.startswith("detaug.") and not isinstance(error, BatchError)):
            raise CannotRun(str(error)) from error  # it says what is wrong; others want their traceback
        print_exc()
        raise click.exceptions.Exit(2) from None


nnunet.add_command(demo)
nnunet.add_command(export)
nnunet.add_command(verify)
