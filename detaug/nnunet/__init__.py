"""nnU-Net's augmentation pipelines, from detaug's transforms. nnU-Net itself is not needed."""

from detaug.nnunet.transforms import training_transforms, validation_transforms
from detaug.nnunet.variants import TRAINING_TRANSFORMS

__all__ = ["TRAINING_TRANSFORMS", "training_transforms", "validation_transforms"]
