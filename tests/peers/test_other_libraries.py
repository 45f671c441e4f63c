"""Pipelines of libraries that draw from torch's, NumPy's or their own generators.

These are torchvision, OpenCV and Numba.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numba
import numpy as np
import pytest
import torch
from torch.utils.data import RandomSampler

from detaug import DeterministicAugmenter, fingerprint
from tests.peers.conformance import Conformance
from tests.peers.items import Example, of_images

SHAPE = (3, 16, 18)

if find_spec("cv2") is not None:
    # Before the first batch: see docs/promises.md.
    import cv2  # noqa: F401

needs_opencv = pytest.mark.skipif(find_spec("cv2") is None, reason="OpenCV is not installed")


@numba.njit  # type: ignore[misc]
def compiled_noise(data: Any) -> Any:
    """Return the array with noise of two of Numba's generators."""
    out = np.empty_like(data)
    for index in np.ndindex(data.shape):
        out[index] = data[index] + np.random.normal() * 0.1 + random.random()
    return out


def numba_noise(data: Any) -> Any:
    """Apply the compiled function to any array."""
    return compiled_noise(np.ascontiguousarray(data))


def with_numba() -> Callable[[Any], Any]:
    """Return a transform that calls a compiled function."""
    return numba_noise


class OpenCVNoise:
    """A transform that holds the library's module, since it imports it late."""

    def __init__(self) -> None:
        import cv2

        self.cv2 = cv2

    def __call__(self, data: Any) -> Any:
        # OpenCV takes a third axis for channels.
        channels, height, width = data.shape
        noise = np.zeros((channels * height, width), np.float32)
        self.cv2.randn(noise, 0, 0.2)
        return data + noise.reshape(data.shape)


class Torchvision:
    """A transform of version 2 of torchvision's."""

    def __init__(self) -> None:
        from torchvision.transforms import v2

        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop((12, 12), scale=(0.5, 1.0), antialias=True),
                v2.RandomApply([v2.ColorJitter(0.3, 0.3)], p=0.8),
                v2.RandomAffine(20),
                v2.Lambda(torch_noise),
            ]
        )

    def __call__(self, data: Any) -> Any:
        return self.transform(torch.from_numpy(data)).numpy()


def torch_noise(data: Any) -> Any:
    """Return the tensor with noise of torch's global generator."""
    return data + 0.1 * torch.randn_like(data)


class TestNumba(Conformance):
    EXAMPLES = (Example("compiled function", of_images(SHAPE, with_numba), checked=True),)


@needs_opencv
class TestOpenCV(Conformance):
    EXAMPLES = (Example("cv2 in an attribute", of_images(SHAPE, OpenCVNoise), checked=True),)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="Torchvision is not installed")
class TestTorchvision(Conformance):
    EXAMPLES = (Example("v2", of_images(SHAPE, Torchvision), checked=True),)


class Noise(torch.utils.data.Dataset[Any]):
    """A data set that draws from OpenCV's generator, whose state cannot be read or restored."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, _: int) -> Any:
        import cv2

        noise = np.zeros(4, np.int32)
        cv2.randu(noise, 0, 1000)
        return noise


@needs_opencv
def test_drawing_an_epochs_order_moves_no_batchs_numbers() -> None:
    def augmenter(num_processes: int) -> DeterministicAugmenter:
        return DeterministicAugmenter.from_dataset(
            Noise(),
            3,
            sampler=RandomSampler(range(9)),
            num_processes=num_processes,
            seed=1,
            check=False,
        )

    with augmenter(0) as batches:
        expected = [fingerprint(batch) for batch in batches]
        replayed = [fingerprint(batches.replay(0, step)) for step in (0, 1, 2)]
    with augmenter(2) as batches:
        by_workers = [fingerprint(batch) for batch in batches]
    assert replayed == expected
    assert by_workers == expected
    assert len(set(expected)) == 3
