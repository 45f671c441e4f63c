"""What all systems are given: the MNI152 template with its tissue labels, and -1 outside."""

from __future__ import annotations

import numpy as np
import torch

from detaug.demo.mri import load_template

PATCH = (128, 128, 128)
#: What nnU-Net reads for `PATCH`, so that rotating and scaling find something in the corners.
ENLARGED = (205, 205, 205)
FLAT_PATCH = (512, 512)
FLAT_ENLARGED = (822, 602)


def volume(shape: tuple[int, int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return an image (1, *shape) float32, z-normalised, and a segmentation (1, *shape) int16."""
    template = load_template()
    image = _fitted(template.image, shape, 0)
    labels = _fitted(template.labels, shape, -1)
    return torch.from_numpy(image[None]), torch.from_numpy(labels[None])


def slice_of_volume(shape: tuple[int, int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return image and segmentation (1, *shape): the middle slice with every voxel five times."""
    template = load_template()
    middle = template.image.shape[2] // 2
    image = _fitted(_enlarged(template.image[:, :, middle]), shape, 0)
    labels = _fitted(_enlarged(template.labels[:, :, middle]), shape, -1)
    return torch.from_numpy(image[None]), torch.from_numpy(labels[None])


def _enlarged(plane: np.ndarray) -> np.ndarray:
    return np.kron(plane, np.ones((5, 5), plane.dtype))


def _fitted(array: np.ndarray, shape: tuple[int, ...], outside: float) -> np.ndarray:
    """Return the array centred in a new shape, cut or padded."""
    fitted = np.full(shape, outside, array.dtype)
    into = []
    out_of = []
    for wanted, size in zip(shape, array.shape, strict=True):
        common = min(wanted, size)
        start = (wanted - common) // 2
        into.append(slice(start, start + common))
        start = (size - common) // 2
        out_of.append(slice(start, start + common))
    fitted[tuple(into)] = array[tuple(out_of)]
    return fitted
