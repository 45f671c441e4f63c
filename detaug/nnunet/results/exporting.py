"""`detaug nnunet export`: a model under the name of nnU-Net's own trainer, for people without detaug."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from detaug.nnunet.compatibility import TRAINER_NAME, external_trainer, is_nnunets_own
from detaug.nnunet.results.folders import DESCRIPTIONS, Model, NoResults, checkpoints_of, load_checkpoint
from detaug.reports.progress import Progress


class CannotExport(ValueError):
    """nnU-Net alone could not use the model, or there is no room for it."""


def export(folder: Path, into: Path | None, shown: Progress) -> Path:
    """Copy a model: descriptions and checkpoints, whose weights stay as they are, under its stock trainer's name.

    Args:
        folder: ``.../DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION``.
        into: where to; None: beside it, under the stock trainer's name.
        shown: shows every checkpoint.

    Returns:
        The new folder. It is there whole or not at all.

    Raises:
        NoResults: there is no such model.
        CannotExport: its trainer is nnU-Net's own, is not found, or builds a network of its own; or the new folder is there
            already.
        OSError: it cannot be written.
    """
    model = Model.of(folder)
    files = [file for fold in model.folds for file in checkpoints_of(fold)]
    if not files:
        raise NoResults(f"{str(folder)!r} has no fold with a checkpoint")
    stock = stock_trainer(model.trainer)
    target = into or folder.resolve().parent / model.named(stock)
    if target.exists():
        raise CannotExport(f"{str(target)!r} is there already; remove it, or name another folder (-o)")
    target.parent.mkdir(parents=True, exist_ok=True)
    # Beside its final place, so that it can be renamed there when it is whole.
    made = target.with_name(f".{target.name}.{os.getpid()}.partial")
    made.mkdir()
    try:
        for name in DESCRIPTIONS:
            if (folder / name).is_file():
                shutil.copyfile(folder / name, made / name)
        shown.total = len(files)
        for number, file in enumerate(files):
            shown.update(f"{file.parent.name}/{file.name}", number)
            _copy(file, made / file.parent.name / file.name, stock)
        shown.done = len(files)
        made.rename(target)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return target


def stock_trainer(name: str) -> str:
    """nnU-Net's own trainer that a trainer derives from, if nnU-Net alone builds the same network by it.

    Raises:
        CannotExport: it does not, or there is nothing to export.
    """
    from detaug.nnunet import trainers

    try:
        trainer = getattr(trainers, name, None) or external_trainer(name)
    except LookupError:
        raise CannotExport(
            f"nnU-Net does not find the trainer {name!r}: name its folder in nnUNet_extTrainer, as for the training "
            "(export nnUNet_extTrainer=$(detaug nnunet path))"
        ) from None
    if is_nnunets_own(trainer):
        raise CannotExport(f"{name} is nnU-Net's own trainer: its model needs no detaug as it is")
    stock = next((base for base in trainer.__mro__ if is_nnunets_own(base)), None)
    builder = next((base for base in trainer.__mro__ if "build_network_architecture" in vars(base)), None)
    if stock is None or builder is None or not is_nnunets_own(builder):
        raise CannotExport(
            f"{name} builds a network of its own ({builder.__name__ if builder else 'none'}.build_network_architecture), "
            "which nnU-Net's own trainers do not: who predicts with its weights needs that class"
        )
    return str(stock.__name__)


def _copy(file: Path, to: Path, trainer: str) -> None:
    from detaug.nnunet.trainers.checkpoint_bytes import write_checkpoint

    to.parent.mkdir(exist_ok=True)
    write_checkpoint({**load_checkpoint(file), TRAINER_NAME: trainer}, to)
