"""nnU-Net's augmentation pipelines, from detaug's transforms, its loader, and trainers that repeat themselves.

nnU-Net itself is needed for the trainers only, which are imported when they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from detaug.nnunet.transforms import training_transforms, validation_transforms
from detaug.nnunet.variants import TRAINING_TRANSFORMS

if TYPE_CHECKING:
    from detaug.nnunet.loading import PatchSource
    from detaug.nnunet.trainers import (
        DetAugLoading,
        DeterministicTraining,
        nnUNetTrainerDetAug,
        nnUNetTrainerDeterministic,
    )

__all__ = [
    "TRAINING_TRANSFORMS",
    "DetAugLoading",
    "DeterministicTraining",
    "PatchSource",
    "nnUNetTrainerDetAug",
    "nnUNetTrainerDeterministic",
    "training_transforms",
    "validation_transforms",
]

_HOMES = {
    "DetAugLoading": "detaug.nnunet.trainers",
    "DeterministicTraining": "detaug.nnunet.trainers",
    "PatchSource": "detaug.nnunet.loading",
    "nnUNetTrainerDetAug": "detaug.nnunet.trainers",
    "nnUNetTrainerDeterministic": "detaug.nnunet.trainers",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'detaug.nnunet' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
