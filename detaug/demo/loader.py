"""A loader and an augmentation pipeline as users of batchgenerators write them, without detaug."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoader
from batchgenerators.transforms.abstract_transforms import Compose
from batchgenerators.transforms.color_transforms import (
    BrightnessMultiplicativeTransform,
    GammaTransform,
)
from batchgenerators.transforms.noise_transforms import (
    GaussianBlurTransform,
    GaussianNoiseTransform,
)
from batchgenerators.transforms.spatial_transforms import MirrorTransform, SpatialTransform

from detaug.demo.mri import Case, turned_template

#: Edge of the loader's patch per edge of the network's: rotation and scaling need voxels around it.
MARGIN = 1.3


class MRIPatchLoader(DataLoader):  # type: ignore[misc]  # batchgenerators has no types
    """Random patches of random cases, drawn from NumPy's global state.

    Each batch is ``{'data': (B, 1, D, H, W) float32, 'seg': (B, 1, D, H, W) int16, 'keys': [name,
    ...]}``.

    Args:
        cases: none of them is smaller than the patch.
        batch_size: number of patches.
        patch_size: (D, H, W) in voxels.
    """

    def __init__(self, cases: Sequence[Case], batch_size: int, patch_size: Sequence[int]) -> None:
        super().__init__(cases, batch_size, infinite=True)
        # `get_indices` draws from these, and batchgenerators leaves them to the subclass.
        self.indices = list(range(len(cases)))
        self.patch_size = tuple(patch_size)

    def generate_train_batch(self) -> dict[str, Any]:
        """Return one batch of randomly placed patches."""
        # In this order, the cases before the places: both draw from NumPy's global state.
        cases = [self._data[index] for index in self.get_indices()]
        patches = [self._patch(case) for case in cases]
        images = np.stack([image for image, _ in patches])
        labels = np.stack([label for _, label in patches])
        return {
            "data": images[:, None],
            "seg": labels[:, None],
            "keys": [case.name for case in cases],
        }

    def _patch(self, case: Case) -> tuple[np.ndarray, np.ndarray]:
        """Return image and labels of a randomly placed patch, (D, H, W) each."""
        slices = []
        for patch_edge, case_edge in zip(self.patch_size, case.image.shape, strict=True):
            # From NumPy's global state, as most loaders for batchgenerators do: the demo shows the
            # consequences.
            start = int(np.random.randint(0, case_edge - patch_edge + 1))
            slices.append(slice(start, start + patch_edge))
        window = tuple(slices)
        return case.image[window], case.labels[window]


def enlarged(patch_size: Sequence[int]) -> tuple[int, ...]:
    """Return the loader's patch size for `training_transforms(patch_size)`, in voxels."""
    return tuple(int(np.ceil(edge * MARGIN)) for edge in patch_size)


def training_transforms(patch_size: Sequence[int]) -> Compose:
    """Return batchgenerators' 3-D augmentation: nnU-Net v1's, with an elastic deformation.

    Args:
        patch_size: (D, H, W) of the output's float32 'data' and 'seg' (B, C, D, H, W), in voxels.
            The input may be larger (`enlarged`).
    """
    angle = (-np.pi / 6, np.pi / 6)
    return Compose(
        [
            SpatialTransform(
                tuple(patch_size),
                alpha=(0.0, 200.0),
                sigma=(6.0, 9.0),
                angle_x=angle,
                angle_y=angle,
                angle_z=angle,
                scale=(0.8, 1.25),
                border_mode_data="constant",
                border_cval_data=-2.0,
                order_seg=1,
                random_crop=False,
                p_el_per_sample=0.3,
                p_rot_per_sample=0.5,
                p_scale_per_sample=0.5,
            ),
            MirrorTransform(axes=(0, 1, 2)),
            GaussianNoiseTransform(noise_variance=(0, 0.05), p_per_sample=0.3),
            GaussianBlurTransform(blur_sigma=(0.5, 1.0), p_per_sample=0.3),
            BrightnessMultiplicativeTransform(multiplier_range=(0.75, 1.25), p_per_sample=0.3),
            GammaTransform(gamma_range=(0.7, 1.5), retain_stats=True, p_per_sample=0.3),
        ]
    )


def demo_pipeline(edge: int) -> tuple[MRIPatchLoader, Any]:
    """Return the pipeline of `detaug preview` and `detaug bench` without an argument.

    Its transforms are nnU-Net's, by detaug.

    Args:
        edge: of the cubic patches, in voxels.
    """
    # Imported here, because it imports the kernels, which the other demos do not need.
    from detaug.nnunet import training_transforms as nnunet_transforms

    patch_size = (edge,) * 3
    loader = MRIPatchLoader([turned_template()], 2, enlarged(patch_size))
    angles = (-np.pi / 6, np.pi / 6)
    mirror_axes = (0, 1, 2)
    return loader, nnunet_transforms(patch_size, angles, None, mirror_axes, False)
