"""OpenCV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import RandomSampler

from detaug import DeterministicAugmenter, fingerprint

pytest.importorskip("cv2", reason="OpenCV is not installed")

from tests.peers.conformance import Conformance
from tests.peers.other_pipelines import OPENCV as EXAMPLES

__all__ = ["EXAMPLES"]


class TestOpenCV(Conformance):
    """Every example of `other_pipelines` that belongs to it."""


class Noise(torch.utils.data.Dataset[Any]):
    """Draws from OpenCV's generator, whose state cannot be read and put back."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, _: int) -> Any:
        import cv2

        noise = np.zeros(4, np.int32)
        cv2.randu(noise, 0, 1000)
        return noise


def test_drawing_an_epochs_order_moves_no_batchs_numbers() -> None:
    def augmenter(n: int) -> DeterministicAugmenter:
        sampler = RandomSampler(range(9))
        return DeterministicAugmenter.from_dataset(Noise(), 3, sampler=sampler, num_processes=n, seed=1, check=False)

    with augmenter(0) as one, augmenter(2) as two:
        batches = [fingerprint(batch) for batch in one]
        assert batches == [fingerprint(one.replay(0, step)) for step in (0, 1, 2)]
        assert batches == [fingerprint(batch) for batch in two]
        assert len(set(batches)) == 3
