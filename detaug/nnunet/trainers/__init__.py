"""Reproducible trainers for nnU-Net v2, and the mixins that make any other trainer reproducible. They need nnU-Net."""

from __future__ import annotations

from typing import Any

from detaug.nnunet.compatibility import find_trainer, trainer_class
from detaug.nnunet.trainers.detaug_loading import DetAugLoading, ExtendedAugmentation, FastTraining
from detaug.nnunet.trainers.mixin import DeterministicTraining

try:
    nnUNetTrainer = trainer_class()  # noqa: N816
except ModuleNotFoundError as error:
    if (error.name or "").partition(".")[0] != "nnunetv2":
        raise
    raise ModuleNotFoundError(
        'the trainers need nnU-Net: pip install "detaug[nnunet]"', name=error.name, path=error.path
    ) from None


class nnUNetTrainerDeterministic(DeterministicTraining, nnUNetTrainer):  # type: ignore[misc, valid-type]  # nnU-Net has no types
    """nnU-Net's default trainer with its own loader and transforms, seeded for every batch."""


class nnUNetTrainerDetAug(DetAugLoading, nnUNetTrainer):  # type: ignore[misc, valid-type]
    """nnU-Net's default trainer with detaug's loader and transforms."""


class nnUNetTrainerDetAugExt(ExtendedAugmentation, nnUNetTrainer):  # type: ignore[misc, valid-type]
    """nnU-Net's default trainer with detaug's loader and a stronger pipeline for MRI."""


class nnUNetTrainerDetAugFast(FastTraining, nnUNetTrainer):  # type: ignore[misc, valid-type]
    """nnU-Net's default trainer with detaug's loader and transforms, and nnU-Net's own settings for speed."""


#: The word in a trainer's name -> its mixin; the longest words first.
_MIXINS: dict[str, type] = {
    "DetAugExt": ExtendedAugmentation,
    "DetAugFast": FastTraining,
    "Deterministic": DeterministicTraining,
    "DetAug": DetAugLoading,
}


def name_with(base: str, word: str) -> str:
    """The name of one of nnU-Net's trainers with a word behind its "Trainer"; where there is no "Trainer", at its end."""
    before, trainer, after = base.partition("Trainer")
    return f"{before}{trainer}{word}{after}"


def trainer_named(name: str) -> Any:
    """``nnUNetTrainerDetAug_250epochs`` is ``nnUNetTrainer_250epochs`` with `DetAugLoading`; so for every trainer that
    nnU-Net comes with (``nnUNet_Primus_S_TrainerDetAug``), and for each word of `_MIXINS`; any other name is an AttributeError.
    """
    for word, mixin in _MIXINS.items():
        stock = name.replace(word, "", 1)
        base = find_trainer(stock) if word in name and name_with(stock, word) == name else None
        if base is not None:
            made = type(
                name,
                (mixin, base),
                {"__module__": __name__, "__doc__": f"`{base.__name__}` with `{mixin.__name__}`."},
            )
            # found here again when it is unpickled
            globals()[name] = made
            return made
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __getattr__(name: str) -> Any:
    return trainer_named(name)


__all__ = [
    "DetAugLoading",
    "DeterministicTraining",
    "ExtendedAugmentation",
    "FastTraining",
    "nnUNetTrainerDetAug",
    "nnUNetTrainerDetAugExt",
    "nnUNetTrainerDetAugFast",
    "nnUNetTrainerDeterministic",
    "trainer_named",
]
