"""nnU-Net's results folders: which trainer, plans and configuration a model is of, its folds, and their checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

#: What nnU-Net's predictor reads besides checkpoints.
DESCRIPTIONS = ("dataset.json", "plans.json", "dataset_fingerprint.json")
#: A fold's checkpoints, the one that says most first.
CHECKPOINTS = ("checkpoint_final.pth", "checkpoint_latest.pth", "checkpoint_best.pth")


class NoResults(ValueError):
    """A folder is not what nnU-Net leaves of a training."""


@dataclass(frozen=True)
class Model:
    """``.../DatasetXXX_Name/TRAINER__PLANS__CONFIGURATION``.

    Attributes:
        folder: of the model.
        trainer, plans, configuration: as its name says.
    """

    folder: Path
    trainer: str
    plans: str
    configuration: str

    @classmethod
    def of(cls, folder: Path) -> Model:
        """The model in this folder.

        Raises:
            NoResults: it has another name, or lacks what nnU-Net writes.
        """
        parts = folder.resolve().name.split("__")
        if not folder.is_dir() or len(parts) != 3:
            raise NoResults(f"{str(folder)!r} is no folder TRAINER__PLANS__CONFIGURATION, as nnU-Net makes for a model")
        missing = [name for name in DESCRIPTIONS[:2] if not (folder / name).is_file()]
        if missing:
            raise NoResults(f"{str(folder)!r} has no {' and no '.join(missing)}: nnU-Net has not trained in it")
        return cls(folder, *parts)

    @property
    def folds(self) -> list[Path]:
        """Its folders ``fold_X`` that hold a checkpoint, by name."""
        return sorted(each for each in self.folder.glob("fold_*") if checkpoints_of(each))

    def named(self, trainer: str) -> str:
        """The name of its folder, were it this trainer's."""
        return "__".join((trainer, self.plans, self.configuration))


def checkpoints_of(fold: Path) -> list[Path]:
    """The checkpoints in a folder ``fold_X``, the one that says most first."""
    return [fold / name for name in CHECKPOINTS if (fold / name).is_file()]


def fold_of(folder: Path) -> Path:
    """A folder ``fold_X``, given itself or its model's folder if that has one fold only.

    Raises:
        NoResults: neither; the message lists the folds.
    """
    if checkpoints_of(folder):
        return folder
    folds = Model.of(folder).folds
    if len(folds) != 1:
        names = ", ".join(each.name for each in folds) or "no fold with a checkpoint"
        raise NoResults(f"{str(folder)!r} has {names}: name the folder of one fold")
    return folds[0]


def load_checkpoint(file: Path) -> Mapping[str, Any]:
    """What nnU-Net has saved.

    Raises:
        NoResults: it is damaged, or nothing of nnU-Net's.
    """
    import torch

    from detaug.nnunet.compatibility import is_checkpoint

    try:
        # nnU-Net's own hold NumPy's scalars, which want a full unpickling, as nnU-Net does itself
        checkpoint = torch.load(file, map_location="cpu", weights_only=False, mmap=True)
    except Exception as error:  # damage shows in many ways
        raise NoResults(f"{str(file)!r} cannot be read: {type(error).__name__}: {error}") from error
    if not is_checkpoint(checkpoint):
        raise NoResults(f"{str(file)!r} is no checkpoint of nnU-Net's")
    return checkpoint  # type: ignore[no-any-return]
