"""Single transforms as one writes them in plain torch: of an image (1, *space), with draws of a Generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.nn import functional

Transform = Callable[[torch.Tensor, np.random.Generator], torch.Tensor]


def noise(image: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Gaussian noise of variance 0.1."""
    return image + torch.randn(image.shape, generator=_torch_generator(rng)) * 0.1**0.5


def gamma(image: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Gamma that keeps mean and standard deviation."""
    least, largest = image.aminmax()
    changed = ((image - least) / (largest - least)) ** rng.uniform(0.7, 1.5) * (
        largest - least
    ) + least
    return (changed - changed.mean()) * (image.std() / changed.std()) + image.mean()


def blur(image: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Gaussian blur along each axis."""
    blurred, dims = image[None], image.ndim - 1
    convolve: Any = functional.conv3d if dims == 3 else functional.conv2d
    for axis in range(dims):
        sigma = rng.uniform(0.5, 1.0)
        offsets = torch.arange(-round(4 * sigma), round(4 * sigma) + 1)
        weights = torch.exp(-0.5 * (offsets / sigma) ** 2)
        shape = [1, 1, *(len(offsets) if axis == each else 1 for each in range(dims))]
        padding = [0] * (2 * dims)
        last = 2 * (dims - 1 - axis)  # torch begins with the last axis
        padding[last : last + 2] = [len(offsets) // 2] * 2
        blurred = convolve(
            functional.pad(blurred, padding, "replicate"), (weights / weights.sum()).reshape(shape)
        )
    return blurred[0]


def low_resolution(image: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """The nearest voxels of a coarser grid, interpolated."""
    coarse = [max(1, round(n * rng.uniform(0.5, 1.0))) for n in image.shape[1:]]
    small = functional.interpolate(image[None], coarse, mode="nearest-exact")
    return functional.interpolate(
        small, image.shape[1:], mode="trilinear" if image.ndim == 4 else "bilinear"
    )[0]


def ghosting(image: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Each so many planes of half of k-space weakened along one axis, but for the central one."""
    axis = int(rng.integers(1, image.ndim))
    k_space = torch.fft.rfft(image, dim=axis)
    gains = torch.ones(k_space.shape[axis])
    gains[:: int(rng.integers(4, 11))] = 1 - rng.uniform(0.5, 1)
    gains[0] = 1
    gains = gains.reshape([-1 if each == axis else 1 for each in range(image.ndim)])
    return torch.fft.irfft(k_space * gains, n=image.shape[axis], dim=axis)


def gibbs_noise(image: torch.Tensor, rng: np.random.Generator) -> torch.Tensor:
    """Half of k-space cut off outside of a ball."""
    space, axes = image.shape[1:], tuple(range(1, image.ndim))
    frequencies = [torch.fft.fftfreq(n) * n for n in space[:-1]] + [
        torch.fft.rfftfreq(space[-1]) * space[-1]
    ]
    squares = sum(each**2 for each in torch.meshgrid(*frequencies, indexing="ij"))
    kept = squares <= ((1 - rng.uniform()) * max(space) * 0.5**0.5) ** 2
    return torch.fft.irfftn(torch.fft.rfftn(image, dim=axes) * kept, s=space, dim=axes)


def _torch_generator(rng: np.random.Generator) -> torch.Generator:
    return torch.Generator().manual_seed(int(rng.integers(2**32)))
