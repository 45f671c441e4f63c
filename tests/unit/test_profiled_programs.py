"""A program under a profiler: batches, and the profile, are what they would be."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import DeterministicAugmenter, current, fingerprint


class Noise(DataLoader):
    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": current().generator.random((1, 1, 8, 8))}


class Fading:
    def __init__(self) -> None:
        self.factor = 1.0

    def set_epoch(self, epoch: int) -> None:
        self.factor /= 1 + epoch

    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {"data": np.multiply(batch["data"], self.factor)}


def prints() -> list[str]:
    with DeterministicAugmenter(Noise(), Fading(), 0, seed=3, batches_per_epoch=4, check=1) as augmenter:
        return [fingerprint(batch) for _ in range(2) for batch in augmenter]


def test_a_profile_function_goes_on_too() -> None:
    plain, names = prints(), set()
    before = sys.getprofile()

    def note(frame: Any, event: str, _: Any) -> None:
        names.add(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        assert prints() == plain
        assert sys.getprofile() is note
    finally:
        sys.setprofile(before)
    assert "set_epoch" in names, "while detaug listens as well"
