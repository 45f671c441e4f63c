"""A loader and an augmentation pipeline as batchgenerators' users write them; neither knows of
detaug.
"""

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

#: The loader cuts a patch this much larger than the network's, so that rotation and scaling find
#: voxels at its edges.
MARGIN = 1.3


class MRIPatchLoader(DataLoader):  # type: ignore[misc]  # batchgenerators has no types
    """Random patches of (D, H, W) voxels of random cases, drawn from NumPy's global state as users
    of batchgenerators do.

    Each batch is ``{'data': (B, 1, D, H, W) float32, 'seg': (B, 1, D, H, W) int16, 'keys': [name,
    ...]}``.
    """

    def __init__(self, cases: Sequence[Case], batch_size: int, patch_size: Sequence[int]) -> None:
        super().__init__(cases, batch_size, infinite=True)
        self.indices = list(range(len(cases)))
        self.patch_size = tuple(patch_size)

    def generate_train_batch(self) -> dict[str, Any]:
        """One batch of randomly placed patches."""
        cases = [self._data[index] for index in self.get_indices()]
        images, labels = zip(*map(self._patch, cases), strict=True)
        data, seg = np.stack(images)[:, None], np.stack(labels)[:, None]
        return {"data": data, "seg": seg, "keys": [case.name for case in cases]}

    def _patch(self, case: Case) -> tuple[np.ndarray, np.ndarray]:
        """Image and labels anywhere in a case, which is no smaller than the patch."""
        where = []
        for patch, edge in zip(self.patch_size, case.image.shape, strict=True):
            start = int(np.random.randint(0, edge - patch + 1))
            where.append(slice(start, start + patch))
        return case.image[tuple(where)], case.labels[tuple(where)]


def enlarged(patch_size: Sequence[int]) -> tuple[int, ...]:
    """What the loader has to cut for `training_transforms(patch_size)`, in voxels."""
    return tuple(int(np.ceil(edge * MARGIN)) for edge in patch_size)


def training_transforms(patch_size: Sequence[int]) -> Compose:
    """Batchgenerators' own 3-D augmentation: what nnU-Net v1 used, with an elastic deformation.

    'data' and 'seg' come out as float32 (B, C, D, H, W) of this size; what goes in may be larger
    (`enlarged`).
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
    """What `detaug preview` and `detaug bench` show without a pipeline: nnU-Net's transforms on
    cubic patches, by detaug.
    """
    from detaug.nnunet import training_transforms as nnunets

    size = (edge,) * 3
    return MRIPatchLoader([turned_template()], 2, enlarged(size)), nnunets(
        size, (-np.pi / 6, np.pi / 6), None, (0, 1, 2), False
    )
