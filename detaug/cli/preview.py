"""`detaug preview`: a contact sheet of what a pipeline does to samples."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import CannotRun, OutputType, Target, write_output


def lengths(text: str) -> tuple[float, ...]:
    """Of a voxel's edges."""
    try:
        edges = tuple(float(part) for part in text.split(","))
    except ValueError:
        edges = ()
    if len(edges) not in (2, 3) or not all(0 < edge < float("inf") for edge in edges):
        raise click.BadParameter(f"{text!r} is not two or three positive lengths such as 3,1,1")
    return edges


@click.command(short_help="Draw what a pipeline does to samples, transform by transform.")
@click.argument("target", metavar="[MODULE:FACTORY]", required=False)
@click.option("--nnunet", nargs=2, metavar="DATASET CONFIG", help="A training of nnU-Net's, on your preprocessed data.")
@click.option("-f", "--fold", type=options.fold, default="0", help="With --nnunet: a number, or 'all'.")
@click.option("-tr", "--tr", "trainer", default="nnUNetTrainerDetAug", help="With --nnunet: the trainer's class.")
@click.option("-p", "--plans", default="nnUNetPlans", help="With --nnunet: the plans' identifier.")
@click.option("-o", "--output", type=OutputType(".png"), default="preview.png", help="The picture.")
@click.option("--samples", type=click.IntRange(1, 32), default=3, help="Rows of the sheet.")
@click.option(
    "--seed", type=options.seed, envvar="DETAUG_SEED", help="Of the samples.  [default: the augmenter's own, else 1234]"
)
@click.option("--epoch", type=click.IntRange(0, 2**32 - 1), default=0, help="Of the samples.")
@click.option("--step", type=click.IntRange(0), default=0, help="Of the first batch.")
@click.option("--channel", type=click.IntRange(0), default=0, help="Of the image, counted from 0.")
@click.option(
    "--spacing", type=lengths, help="Lengths of a voxel's edges, such as 3,1,1.  [default: equal; nnU-Net's own]"
)
def preview(
    target: str | None,
    nnunet: tuple[str, str] | None,
    fold: int | str,
    trainer: str,
    plans: str,
    output: Path,
    **asked: Any,
) -> None:
    """Draw a contact sheet: a row for each sample, a column for each transform, with its params.

    MODULE:FACTORY, as package.module:factory or path/to/file.py:factory, is a function without arguments, as for `detaug
    verify`: it returns (loader, transform), a map-style data set, or a DeterministicAugmenter. The samples are those that
    a training with this seed gets, and with the augmenter's name if it returns one: name="train" draws other numbers than no
    name. Without it, a demo is drawn: a pipeline on an MRI that comes with nilearn.

    The exit status is 2 where there is no pipeline with images.
    """
    from detaug.previews import preview as make
    from detaug.reports.progress import progress

    if target is not None and nnunet is not None:
        raise click.UsageError("give MODULE:FACTORY or --nnunet, not both")
    try:
        with progress("preview") as shown:
            asked["progress"] = shown
            if nnunet is None:
                result = make(target, **asked)
            else:
                from detaug.nnunet.verification.settings import Settings
                from detaug.previews.previewing import preview_training

                seed = {} if asked["seed"] is None else {"seed": asked["seed"]}
                settings = Settings(*nnunet, fold=fold, trainer=trainer, plans=plans, device="cpu", **seed)
                result = preview_training(settings, **asked)
            shown.update("draw")
            picture = result.png
    except MemoryError as error:
        raise CannotRun("there is not enough memory for one batch") from error
    write_output(output, picture)
    console = Target().console()
    console.print(
        f"{output}: {len(result.samples)} samples, {len(result.places)} transforms that changed them", soft_wrap=True
    )
