"""Batches of megabytes: the same bytes, copied or made in the slot."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import detaug
from detaug import DeterministicAugmenter, fingerprint
from tests.support.loaders import RandomLoader

MEGABYTES = 16
BATCHES = 6


class Numbered(RandomLoader):
    """Each batch is its step and bytes that follow from it; cheap to make.

    Args:
        in_slot: whether they are made where they travel.
    """

    def __init__(self, in_slot: bool) -> None:
        super().__init__()
        self.in_slot = in_slot

    def generate_train_batch(self) -> dict[str, Any]:
        shape = (MEGABYTES * 2**20 // 8 - 5,)
        array = (detaug.current().empty if self.in_slot else np.empty)(shape, np.int64)
        return {"data": fill(array, detaug.current().step), "rest": np.arange(1000) + detaug.current().step}


def fill(array: np.ndarray[Any, Any], step: int) -> np.ndarray[Any, Any]:
    array[:] = step
    array[:: 1 << 10] += np.arange(len(array[:: 1 << 10]))
    return array


@pytest.mark.parametrize("in_slot", [False, True])
def test_the_bytes_are_the_same_however_they_are_copied(in_slot: bool) -> None:
    with DeterministicAugmenter(Numbered(in_slot), None, 1, 2, seed=1) as augmenter:
        for step in range(BATCHES):
            batch = next(augmenter)
            expected = fill(np.empty(batch["data"].shape, np.int64), step)
            assert np.array_equal(batch["data"], expected)
            assert np.array_equal(batch["rest"], np.arange(1000) + step)
            if step in (0, BATCHES - 1):
                assert fingerprint(batch) == fingerprint(augmenter.replay(0, step))
