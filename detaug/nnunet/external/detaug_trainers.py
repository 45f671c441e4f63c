"""Where nnU-Net finds detaug's trainers: it imports every module in the folders that ``nnUNet_extTrainer`` names.

Nothing is defined here: nnU-Net drops modules of such folders again, and classes of dropped modules do not pickle.
"""

from detaug.nnunet import trainers
from detaug.nnunet.trainers import (
    nnUNetTrainerDetAug,
    nnUNetTrainerDetAugExt,
    nnUNetTrainerDetAugFast,
    nnUNetTrainerDeterministic,
)

__all__ = [
    "nnUNetTrainerDetAug",
    "nnUNetTrainerDetAugExt",
    "nnUNetTrainerDetAugFast",
    "nnUNetTrainerDeterministic",
]


def __getattr__(name: str) -> type:
    """nnU-Net's variants of its trainer under our names, such as ``nnUNetTrainerDetAug_250epochs``."""
    return trainers.trainer_named(name)  # type: ignore[no-any-return]
