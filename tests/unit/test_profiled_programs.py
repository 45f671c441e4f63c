"""A program under a profiler: batches, and the profile, are what they would be."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from detaug import DeterministicAugmenter, fingerprint


class Fading:
    factor = 1.0

    def set_epoch(self, epoch: int) -> None:
        self.factor /= 1 + epoch

    def __call__(self, batch: Any) -> Any:
        return batch * self.factor


def prints() -> list[str]:
    with DeterministicAugmenter(
        lambda: iter(np.arange(8.0).reshape(4, 2)), Fading(), 0, seed=3, num_streams=1, check=1
    ) as augmenter:
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
