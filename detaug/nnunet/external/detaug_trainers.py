"""The module in which nnU-Net finds detaug's trainers.

It imports every module in the folders that ``nnUNet_extTrainer`` names, and asks each for the
trainer's name.

Nothing is defined here: nnU-Net drops modules of such folders again, and classes of dropped modules
do not pickle.
"""

from __future__ import annotations

from typing import Any

from detaug.nnunet import trainers


def __getattr__(name: str) -> Any:
    return getattr(trainers, name)
