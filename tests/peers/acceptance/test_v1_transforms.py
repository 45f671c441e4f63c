"""A pipeline of batchgenerators' own transforms gives the same batches in all ways."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
from batchgenerators.transforms.abstract_transforms import Compose, RndTransform
from batchgenerators.transforms.channel_selection_transforms import DataChannelSelectionTransform
from batchgenerators.transforms.color_transforms import (
    BrightnessMultiplicativeTransform,
    ContrastAugmentationTransform,
    GammaTransform,
)
from batchgenerators.transforms.noise_transforms import (
    GaussianBlurTransform,
    GaussianNoiseTransform,
    RicianNoiseTransform,
)
from batchgenerators.transforms.spatial_transforms import (
    MirrorTransform,
    SpatialTransform,
    TransposeAxesTransform,
)
from batchgenerators.transforms.utility_transforms import NumpyToTensor

from tests.processes.purity.ways import making, run_all_ways, with_workers
from tests.support.comparing import fingerprints_of
from tests.support.loaders import dawdle


class Volumes(SlimDataLoaderBase):
    """A loader of random patches of a fixed volume with its labels.

    Args:
        batch_size: number of patches.
        delay: time that a batch takes, in seconds.
    """

    def __init__(self, batch_size: int = 2, delay: float = 0.0) -> None:
        volume = np.linspace(-1, 1, 24**3, dtype=np.float32).reshape(24, 24, 24)
        labels = (volume > 0).astype(np.float32)
        super().__init__(np.stack([volume, labels]), batch_size)
        self._delay = delay

    def generate_train_batch(self) -> dict[str, Any]:
        dawdle(self._delay)
        corners = np.random.randint(0, 8, (self.batch_size, 3))
        patches = np.stack([self._patch(*corner) for corner in corners])
        return {"data": patches[:, :1].copy(), "seg": patches[:, 1:].copy()}

    def _patch(self, x: int, y: int, z: int) -> np.ndarray:
        """Return the patch (2, 16, 16, 16) whose first voxel is (x, y, z)."""
        return self._data[:, x : x + 16, y : y + 16, z : z + 16]


def pipeline() -> Compose:
    """Return batchgenerators' transforms of all kinds."""
    spatial = SpatialTransform(
        (12, 12, 12),
        (5, 5, 5),
        do_elastic_deform=True,
        alpha=(0, 100),
        sigma=(4, 6),
        do_rotation=True,
        angle_x=(-0.3, 0.3),
        angle_y=(-0.3, 0.3),
        angle_z=(-0.3, 0.3),
        do_scale=True,
        scale=(0.8, 1.2),
        border_mode_data="nearest",
        random_crop=True,
    )
    return Compose(
        [
            spatial,
            MirrorTransform((0, 1, 2)),
            TransposeAxesTransform((0, 1, 2), p_per_sample=0.5),
            GaussianNoiseTransform((0, 0.1), p_per_sample=0.5),
            RicianNoiseTransform((0, 0.1), p_per_sample=0.5),
            GaussianBlurTransform((0.5, 1.0), p_per_sample=0.5),
            BrightnessMultiplicativeTransform((0.7, 1.3), p_per_sample=0.5),
            ContrastAugmentationTransform(p_per_sample=0.5),
            GammaTransform((0.7, 1.5), True, p_per_sample=0.5),
            RndTransform(DataChannelSelectionTransform([0]), prob=0.5),
            NumpyToTensor(["data", "seg"], "float"),
        ]
    )


@pytest.mark.parametrize("stateless", [True, None])
def test_the_pipeline_gives_the_same_batches_in_all_ways(stateless: bool | None) -> None:
    make = making(Volumes(delay=0.02), pipeline(), num_streams=4, stateless=stateless)
    findings = run_all_ways(make, with_workers(stateless, (None,)))
    findings.assert_right()
    batches = list(findings.batches["0 workers"].values())
    assert all(isinstance(batch["data"], torch.Tensor) for batch in batches)
    assert batches[0]["data"].shape == (2, 1, 12, 12, 12)
    assert len(set(fingerprints_of(batches))) == len(batches)
