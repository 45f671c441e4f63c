"""nnU-Net's augmentation pipelines made of detaug's transforms, its loader, and its trainers.

Only the trainers need nnU-Net. All names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from detaug.lazy_exports import lazily

if TYPE_CHECKING:
    from detaug.nnunet.loading import PatchSource
    from detaug.nnunet.trainers import (
        DetAugLoading,
        DeterministicTraining,
        nnUNetTrainerDetAug,
        nnUNetTrainerDetAugFast,
        nnUNetTrainerDeterministic,
    )
    from detaug.nnunet.transforms import training_transforms, validation_transforms
    from detaug.nnunet.variants import TRAINING_TRANSFORMS

__all__ = [
    "TRAINING_TRANSFORMS",
    "DetAugLoading",
    "DeterministicTraining",
    "PatchSource",
    "nnUNetTrainerDetAug",
    "nnUNetTrainerDetAugFast",
    "nnUNetTrainerDeterministic",
    "training_transforms",
    "validation_transforms",
]

__getattr__, __dir__ = lazily(
    __name__,
    {
        "detaug.nnunet.loading": ("PatchSource",),
        "detaug.nnunet.trainers": (
            "DetAugLoading",
            "DeterministicTraining",
            "nnUNetTrainerDetAug",
            "nnUNetTrainerDetAugFast",
            "nnUNetTrainerDeterministic",
        ),
        "detaug.nnunet.transforms": ("training_transforms", "validation_transforms"),
        "detaug.nnunet.variants": ("TRAINING_TRANSFORMS",),
    },
)
