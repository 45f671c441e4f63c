"""nnU-Net's preprocessed cases as a source of batches that reads only the voxels it needs."""

from detaug.nnunet.loading.patch_source import PatchSource

__all__ = ["PatchSource"]
