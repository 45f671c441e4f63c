"""torchvision, scikit-image, OpenCV and Numba: libraries that draw from torch's, NumPy's or their
own generators.
"""

from __future__ import annotations

import random
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
    import cv2  # noqa: F401 - before the first batch, see docs/promises.md

needs_opencv = pytest.mark.skipif(find_spec("cv2") is None, reason="OpenCV is not installed")


@numba.njit  # type: ignore[misc]
def compiled_noise(data: Any) -> Any:
    out = np.empty_like(data)
    for index in np.ndindex(data.shape):
        out[index] = data[index] + np.random.normal() * 0.1 + random.random()
    return out


def numba_noise(data: Any) -> Any:
    return compiled_noise(np.ascontiguousarray(data))


class OpenCVNoise:
    """Holds the library's module, as people do who import it late."""

    def __init__(self) -> None:
        import cv2

        self.cv2 = cv2

    def __call__(self, data: Any) -> Any:
        noise = np.zeros(
            (data.shape[0] * data.shape[1], data.shape[2]), np.float32
        )  # further axes are channels to it
        self.cv2.randn(noise, 0, 0.2)
        return data + noise.reshape(data.shape)


class Torchvision:
    """Version 2 of its transforms."""

    def __init__(self) -> None:
        from torchvision.transforms import v2

        self.transform = v2.Compose(
            [
                v2.RandomResizedCrop((12, 12), scale=(0.5, 1.0), antialias=True),
                v2.RandomApply([v2.ColorJitter(0.3, 0.3)], p=0.8),
                v2.RandomAffine(20),
                v2.Lambda(_torch_noise),
            ]
        )

    def __call__(self, data: Any) -> Any:
        return self.transform(torch.from_numpy(data)).numpy()


def _torch_noise(data: Any) -> Any:
    return data + 0.1 * torch.randn_like(data)


class TestNumba(Conformance):
    EXAMPLES = (Example("compiled function", of_images(SHAPE, lambda: numba_noise), checked=True),)


@needs_opencv
class TestOpenCV(Conformance):
    EXAMPLES = (Example("cv2 in an attribute", of_images(SHAPE, OpenCVNoise), checked=True),)


@pytest.mark.skipif(find_spec("torchvision") is None, reason="Torchvision is not installed")
class TestTorchvision(Conformance):
    EXAMPLES = (Example("v2", of_images(SHAPE, Torchvision), checked=True),)


class Noise(torch.utils.data.Dataset[Any]):
    """Draws from OpenCV's generator, whose state cannot be read and put back."""

    def __len__(self) -> int:
        return 9

    def __getitem__(self, _: int) -> Any:
        import cv2

        noise = np.zeros(4, np.int32)
        cv2.randu(noise, 0, 1000)
        return noise


@needs_opencv
def test_drawing_an_epochs_order_moves_no_batchs_numbers() -> None:
    def augmenter(n: int) -> DeterministicAugmenter:
        sampler = RandomSampler(range(9))
        return DeterministicAugmenter.from_dataset(
            Noise(), 3, sampler=sampler, num_processes=n, seed=1, check=False
        )

    with augmenter(0) as one, augmenter(2) as two:
        batches = [fingerprint(batch) for batch in one]
        assert batches == [fingerprint(one.replay(0, step)) for step in (0, 1, 2)]
        assert batches == [fingerprint(batch) for batch in two]
        assert len(set(batches)) == 3
