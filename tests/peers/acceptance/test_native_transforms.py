"""An augmenter applies detaug's own transforms to each sample of a batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

from detaug import SeedTree
from detaug.transforms import Compose, GaussianNoise, Mirror, RandomApply, SpatialTransform
from tests.support.augmenters import Maker
from tests.support.comparing import take

PATCH = (12, 12, 12)


class Volumes(SlimDataLoaderBase):
    """A loader of patches of one fixed volume with its labels, in batchgenerators' format.

    Args:
        labels_key: key of the labels in a batch.
        torch_arrays: whether images and labels are tensors.
    """

    def __init__(self, labels_key: str = "seg", torch_arrays: bool = False) -> None:
        volume = np.random.default_rng(0).normal(size=(1, 24, 24, 24)).astype(np.float32)
        super().__init__(volume, batch_size=3)
        self._labels_key = labels_key
        self._torch_arrays = torch_arrays

    def generate_train_batch(self) -> dict[str, Any]:
        corners = np.random.randint(0, 8, (self.batch_size, 3))
        data: Any = np.stack([self._patch(*corner) for corner in corners])
        labels: Any = (data > 0).astype(np.int16)
        if self._torch_arrays:
            data = torch.from_numpy(data)
            labels = torch.from_numpy(labels)
        return {"data": data, self._labels_key: labels, "names": [str(c) for c in corners]}

    def _patch(self, x: int, y: int, z: int) -> np.ndarray:
        """Return the patch (1, 16, 16, 16) whose first voxel is (x, y, z)."""
        return self._data[:, x : x + 16, y : y + 16, z : z + 16]


def pipeline() -> Compose:
    """Return three of detaug's transforms."""
    return Compose(
        [
            SpatialTransform(PATCH, 0, False, p_rotation=0.7, rotation=(-0.5, 0.5), p_scaling=0.5),
            RandomApply(GaussianNoise((0, 0.1)), 0.5),
            Mirror((0, 1, 2)),
        ]
    )


@pytest.mark.parametrize("torch_arrays", [False, True])
@pytest.mark.parametrize("key", ["seg", "target"])
def test_each_sample_of_a_batch_is_augmented_from_its_own_generator(
    make: Maker, key: str, torch_arrays: bool
) -> None:
    options = {"seed": 3, "num_streams": 4}
    raw_batches = take(make(Volumes(key, torch_arrays), None, 0, **options), 6)
    batches = take(make(Volumes(key, torch_arrays), pipeline(), 2, **options), 6)
    kind = torch.Tensor if torch_arrays else np.ndarray
    for step, (raw, batch) in enumerate(zip(raw_batches, batches, strict=True)):
        assert batch["names"] == raw["names"]
        assert isinstance(batch["data"], kind)
        for sample in range(3):
            rng = SeedTree(3).generator(0, step, num_streams=4, sample=sample)
            expected = pipeline()(image=raw["data"][sample], segmentation=raw[key][sample], rng=rng)
            image = np.asarray(batch["data"][sample])
            labels = np.asarray(batch[key][sample])
            assert np.array_equal(image, np.asarray(expected["image"]))
            assert np.array_equal(labels, np.asarray(expected["segmentation"]))
