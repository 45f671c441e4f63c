"""What all systems are given: the MNI152 template with its tissue labels, and -1 outside."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch

PATCH = (128, 128, 128)
#: What nnU-Net reads for `PATCH`, so that rotating and scaling find something in the corners.
ENLARGED = (205, 205, 205)
SMALL_PATCH = (48, 48, 48)
SMALL_ENLARGED = (93, 93, 93)
FLAT_PATCH = (512, 512)
FLAT_ENLARGED = (822, 602)


def image(space: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """(1, *space) float32: of three extents a volume, of two a slice."""
    return {"image": (volume(space) if len(space) == 3 else slice_of_volume(space))[0]}


def sized(name: str, space: tuple[int, ...]) -> str:
    """A row's name, with the extents where they are not `PATCH`."""
    return name if space == PATCH else f"{name}, {' × '.join(map(str, space))}"


@lru_cache(maxsize=2)
def volume(shape: tuple[int, int, int], channels: int = 1) -> tuple[torch.Tensor, torch.Tensor]:
    """Image (C, *shape) float32, z-normalised MRI; segmentation (1, *shape) int16 with labels -1, 0, 1, 2."""
    from detaug.demo.mri import load_template

    template = load_template()
    image, labels = (
        _fitted(array, shape, outside)
        for array, outside in ((template.image, 0), (template.labels, -1))
    )
    # other channels are the first one, mirrored: other values in other places
    stacked = np.stack(
        [np.flip(image, channel % 3) if channel else image for channel in range(channels)]
    )
    return torch.from_numpy(np.ascontiguousarray(stacked)), torch.from_numpy(labels[None])


@lru_cache(maxsize=2)
def slice_of_volume(shape: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Image (1, *shape) and segmentation (1, *shape): the template's middle slice with every voxel five times."""
    from detaug.demo.mri import load_template

    template = load_template()
    middle = template.image.shape[2] // 2
    enlarged = [
        np.kron(array[:, :, middle], np.ones((5, 5), array.dtype))
        for array in (template.image, template.labels)
    ]
    image, labels = (
        _fitted(array, shape, outside) for array, outside in zip(enlarged, (0, -1), strict=True)
    )
    return torch.from_numpy(image[None]), torch.from_numpy(labels[None])


def _fitted(array: np.ndarray, shape: tuple[int, ...], outside: float) -> np.ndarray:
    """Centred in a new shape, cut or padded."""
    fitted = np.full(shape, outside, array.dtype)
    into, out_of = [], []
    for there, here in zip(shape, array.shape, strict=True):
        size = min(there, here)
        into.append(slice((there - size) // 2, (there - size) // 2 + size))
        out_of.append(slice((here - size) // 2, (here - size) // 2 + size))
    fitted[tuple(into)] = array[tuple(out_of)]
    return fitted
