"""`detaug nnunet demo`: nnU-Net killed and continued on a toy data set, with the same checkpoint at the end."""

from __future__ import annotations

import importlib.util
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from detaug.cli.options import CannotRun, SeedType, Target, json_option

if TYPE_CHECKING:
    from detaug.seeding.tree import Seed


@click.command(short_help="Train nnU-Net on a toy data set, kill it, continue it, compare.")
@click.option("--seed", type=SeedType(), default=1234, help="Of the data set and of the trainings.")
@json_option
def demo(seed: Seed, json_target: Target) -> None:
    """Show on a toy data set that a training which is killed and continued ends with the same checkpoint.

    Five cases of 32³ voxels are made, nnU-Net plans and preprocesses them, and nnUNetTrainerDetAug trains on the CPU for two
    short epochs, with a narrow network: once straight through, and once with another number of workers, killed (SIGKILL) in
    the second epoch and continued with --c. The two checkpoint_final.pth are compared byte for byte. It takes about two
    minutes on two idle cores; afterwards nothing is left of it.

    The exit status is 0 if they are equal, 1 if not, and 2 if nnU-Net is missing or a training fails.
    """
    if importlib.util.find_spec("nnunetv2") is None:
        raise CannotRun("nnU-Net is not installed: pip install 'detaug[nnunet]'")
    from detaug.demo.toy_training import train_and_compare
    from detaug.nnunet.verification import CannotVerify, TrainingFailed
    from detaug.reports.progress import progress

    console = json_target.console()
    began = time.perf_counter()
    with progress("nnunet demo", 5) as shown, tempfile.TemporaryDirectory(prefix="detaug-nnunet-demo-") as folder:

        def told(what: str) -> None:
            shown.update(what, done=0 if not shown.what else shown.done + 1)

        try:
            found = train_and_compare(Path(folder), seed, told)
        except (CannotVerify, TrainingFailed) as error:
            raise CannotRun(f"the training failed: {error}") from error
    epoch, steps = found.killed_at
    console.print(f"straight through              checkpoint_final.pth  sha256 {found.straight[:16]}")
    console.print(f"killed, continued with --c    checkpoint_final.pth  sha256 {found.continued[:16]}")
    if found.equal:
        console.print("[bold green]equal[/]: the same checkpoint, byte for byte", end="")
    else:
        console.print("[bold red]different[/]: this is a bug in detaug", end="")
    console.print(f", killed in epoch {epoch} after {steps} batches (seed {seed}, {time.perf_counter() - began:.0f} s)")
    json_target.write(
        {
            "equal": found.equal,
            "seed": seed,
            "straight": found.straight,
            "continued": found.continued,
            "killed_in_epoch": epoch,
            "killed_after_batches": steps,
        }
    )
    if not found.equal:
        raise click.exceptions.Exit(1)
