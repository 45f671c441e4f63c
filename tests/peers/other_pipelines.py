"""torchvision, scikit-image, OpenCV and Numba: libraries that draw from torch's, NumPy's or their own generators."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch

from detaug import DeterministicAugmenter
from tests.peers.items import Example, from_blank, from_images

SHAPE = (3, 16, 18)


@numba.njit  # type: ignore[misc]
def compiled_noise(data: Any) -> Any:
    out = np.empty_like(data)
    for index in np.ndindex(data.shape):
        out[index] = data[index] + np.random.normal() * 0.1 + random.random()
    return out


def numba_noise(data: Any) -> Any:
    return compiled_noise(np.ascontiguousarray(data))


class NumbaOfBatches:
    def __call__(self, image: Any, **others: Any) -> dict[str, Any]:
        return {"image": compiled_noise(image), **others}


class OpenCVNoise:
    """Holds the library's module, as people do who import it late."""

    def __init__(self) -> None:
        import cv2

        self.cv2 = cv2

    def __call__(self, data: Any) -> Any:
        noise = np.zeros((data.shape[0] * data.shape[1], data.shape[2]), np.float32)  # further axes are channels to it
        self.cv2.randn(noise, 0, 0.2)
        return data + noise.reshape(data.shape)


def opencv_function(data: Any) -> Any:
    import cv2

    angle = float(cv2.randu(np.zeros((1, 1)), -30, 30)[0, 0])
    turn = cv2.getRotationMatrix2D((data.shape[2] / 2, data.shape[1] / 2), angle, 1.0)
    return np.stack([cv2.warpAffine(plane, turn, plane.shape[::-1]) for plane in data])


class OpenCVOfBatches:
    def __init__(self) -> None:
        self.noise = OpenCVNoise()

    def __call__(self, image: Any, **others: Any) -> dict[str, Any]:
        return {"image": np.stack([self.noise(each) for each in image]), **others}


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


class TorchvisionOfBatches:
    def __init__(self) -> None:
        self.one = Torchvision()

    def __call__(self, image: Any, **others: Any) -> dict[str, Any]:
        return {"image": np.stack([self.one(each) for each in image]), **others}


def dataset(make: Callable[[], Callable[[Any], Any]]) -> Callable[..., DeterministicAugmenter]:
    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        return from_images(folder, SHAPE, make(), **options)

    return build


def whole_batches(make: Callable[[], Callable[..., Any]]) -> Callable[..., DeterministicAugmenter]:
    def build(folder: Path, **options: Any) -> DeterministicAugmenter:
        return from_blank(folder, (2, *SHAPE), make(), **options)

    return build


NUMBA = [
    Example("compiled function", dataset(lambda: numba_noise), often=True),
    Example("compiled, whole batches", whole_batches(NumbaOfBatches), indices=False),
]
OPENCV = [
    Example("cv2 in a function", dataset(lambda: opencv_function)),
    Example("cv2 in an attribute", dataset(OpenCVNoise), often=True),
    Example("cv2, whole batches", whole_batches(OpenCVOfBatches), indices=False),
]
TORCHVISION = [
    Example("v2", dataset(Torchvision), often=True),
    Example("v2, whole batches", whole_batches(TorchvisionOfBatches), indices=False),
]
