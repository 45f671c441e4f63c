"""No transform needs more memory than its results, one image beside them, and some lines and planes."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest

from detaug import SeedTree
from tests.support.transforms import golden
from tests.support.transforms.every_transform import EVERY

SHAPE = (48, 48, 48)
LINES_AND_PLANES = 1_000_000


def size(value: Any) -> int:
    return value.nbytes if isinstance(value, np.ndarray) else sum(map(size, value)) if isinstance(value, list) else 0


@pytest.mark.parametrize("name", EVERY)
def test_the_peak_is_the_results_and_an_image(name: str) -> None:
    transform, sample = EVERY[name](3), golden.sample(0, SHAPE)
    transform(**sample, rng=SeedTree(0).generator(0))  # compiled
    for seed in range(2):
        tracemalloc.start()
        before, _ = tracemalloc.get_traced_memory()
        result = transform(**sample, rng=SeedTree(seed).generator(0))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        made = sum(size(value) for key, value in result.items() if value is not sample.get(key))
        assert peak - before <= made + sample["image"].nbytes + LINES_AND_PLANES
