"""The demo's loader and transforms are what a user of batchgenerators would write."""

from __future__ import annotations

import os

import numpy as np
import pytest

from detaug.demo import Case, MRIPatchLoader, training_transforms
from detaug.demo.loader import enlarged


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    voxels = np.arange(20 * 22 * 24, dtype=np.float32).reshape(20, 22, 24)
    return [Case(f"case {i}", voxels + i, (voxels % 3).astype(np.int16)) for i in range(3)]


def test_batch_has_the_shapes_and_types_of_batchgenerators(cases: list[Case]) -> None:
    batch = next(MRIPatchLoader(cases, 2, (8, 9, 10)))
    assert batch["data"].shape == batch["seg"].shape == (2, 1, 8, 9, 10)
    assert batch["data"].dtype == np.float32
    assert batch["seg"].dtype == np.int16
    assert len(batch["keys"]) == 2
    assert batch["pid"] == os.getpid()


def test_transforms_cut_the_enlarged_patch_to_the_patch(cases: list[Case]) -> None:
    patch = (10, 11, 12)
    loader = MRIPatchLoader(cases, 2, enlarged(patch))
    transform = training_transforms(patch)
    np.random.seed(1)
    for _ in range(4):
        batch = transform(**next(loader))
        assert batch["data"].shape == batch["seg"].shape == (2, 1, *patch)
        assert batch["data"].dtype == np.float32
        assert set(batch) == {"data", "seg", "keys", "pid"}
