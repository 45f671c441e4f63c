"""detaug's own transforms, as an augmenter's transform over batches."""

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
    """Patches of one fixed volume with its labels, in batchgenerators' format."""

    def __init__(self, labels_key: str = "seg", torch_arrays: bool = False) -> None:
        super().__init__(
            np.random.default_rng(0).normal(size=(1, 24, 24, 24)).astype(np.float32), 3
        )
        self._key, self._torch = labels_key, torch_arrays

    def generate_train_batch(self) -> dict[str, Any]:
        corners = np.random.randint(0, 8, (self.batch_size, 3))
        data = np.stack([self._data[:, x : x + 16, y : y + 16, z : z + 16] for x, y, z in corners])
        batch = {
            "data": data,
            self._key: (data > 0).astype(np.int16),
            "names": [str(c) for c in corners],
        }
        return {
            k: torch.from_numpy(v) if self._torch and k != "names" else v for k, v in batch.items()
        }


def pipeline() -> Compose:
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
    raw = take(make(Volumes(key, torch_arrays), None, 0, seed=3, num_streams=4), 6)
    batches = take(make(Volumes(key, torch_arrays), pipeline(), 2, seed=3, num_streams=4), 6)
    for step, (given, made) in enumerate(zip(raw, batches, strict=True)):
        assert made["names"] == given["names"]
        assert isinstance(made["data"], torch.Tensor if torch_arrays else np.ndarray)
        for sample in range(3):
            alone = pipeline()(
                image=given["data"][sample],
                segmentation=given[key][sample],
                rng=SeedTree(3).generator(0, step, num_streams=4, sample=sample),
            )
            assert np.array_equal(np.asarray(made["data"][sample]), np.asarray(alone["image"]))
            assert np.array_equal(np.asarray(made[key][sample]), np.asarray(alone["segmentation"]))
