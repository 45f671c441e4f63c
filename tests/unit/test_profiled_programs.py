"""A profiler changes no batch, and detaug does not disturb the profiler."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from detaug import DeterministicAugmenter, fingerprint


class Fading:
    """A transform with `set_epoch`."""

    factor = 1.0

    def set_epoch(self, epoch: int) -> None:
        self.factor /= 1 + epoch

    def __call__(self, batch: Any) -> Any:
        return batch * self.factor


def rows() -> Any:
    return iter(np.arange(8.0).reshape(4, 2))


def fingerprints() -> list[str]:
    options: dict[str, Any] = {"seed": 3, "num_streams": 1, "check": 1}
    with DeterministicAugmenter(rows, Fading(), 0, **options) as augmenter:
        first = [fingerprint(batch) for batch in augmenter]
        second = [fingerprint(batch) for batch in augmenter]
    return first + second


def test_a_profile_function_goes_on_too() -> None:
    plain = fingerprints()
    names = set()
    profile_before = sys.getprofile()

    def record_name(frame: Any, event: str, _: Any) -> None:
        names.add(frame.f_code.co_name)

    sys.setprofile(record_name)
    try:
        assert fingerprints() == plain
        assert sys.getprofile() is record_name
    finally:
        sys.setprofile(profile_before)
    assert "set_epoch" in names, "while detaug listens as well"
