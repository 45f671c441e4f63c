"""The demo's loader and transforms behave like those of a user of batchgenerators."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.demo import Case, MRIPatchLoader, training_transforms
from detaug.demo.loader import enlarged


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    voxels = np.arange(20 * 22 * 24, dtype=np.float32).reshape(20, 22, 24)
    return [Case(f"case {i}", voxels + i, (voxels % 3).astype(np.int16)) for i in range(3)]


def test_transforms_cut_the_enlarged_patch_to_the_patch(cases: list[Case]) -> None:
    patch = (10, 11, 12)
    loader = MRIPatchLoader(cases, 2, enlarged(patch))
    transform = training_transforms(patch)
    np.random.seed(1)
    for _ in range(4):
        raw = next(loader)
        assert raw["data"].shape == raw["seg"].shape == (2, 1, 13, 15, 16)
        assert raw["data"].dtype == np.float32
        assert raw["seg"].dtype == np.int16
        batch = transform(**raw)
        assert batch["data"].shape == batch["seg"].shape == (2, 1, *patch)
        assert batch["data"].dtype == np.float32
        assert set(batch) == {"data", "seg", "keys"}
        assert len(batch["keys"]) == 2
