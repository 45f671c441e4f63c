"""batchgeneratorsv2's grid for given params, in float32 as it computes it and in float64 as a
reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn.functional import grid_sample

from detaug.transforms import SpatialTransform
from detaug.transforms.geometry.elastic import displacement


def reference_params(
    transform: SpatialTransform, params: dict[str, Any], shape: tuple[int, ...]
) -> dict[str, Any]:
    """What batchgeneratorsv2's `_apply_to_image` and `_apply_to_segmentation` take."""
    grid = None
    if params["affine"] is not None or params["elastic"] is not None:
        grid = sampling_grid(transform, params, shape, torch.float32)
    return {"grid": grid, "center_location_in_pixels": params["center_location_in_pixels"]}


def sampling_grid(
    transform: SpatialTransform, params: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """The patch's grid in `grid_sample`'s coordinates."""
    patch = transform.patch_size
    axes = [torch.arange(n, dtype=dtype) - (n - 1) / 2 for n in patch]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
    mean: Any = 0
    if params["elastic"] is not None:
        field, _ = displacement(patch, **params["elastic"])
        grid = grid + torch.from_numpy(
            np.moveaxis(field[-len(patch) :].reshape(-1, *patch), 0, -1).copy()
        ).to(dtype)
    if params["affine"] is not None:
        grid = grid @ torch.tensor(params["affine"], dtype=torch.float64).T.to(dtype)
    if transform.center_deformation and params["elastic"] is not None:
        mean = grid.mean(dim=list(range(len(patch))))
    center = torch.tensor(
        [c - n / 2 for c, n in zip(params["center_location_in_pixels"], shape, strict=True)]
    )
    grid = grid + (center.to(dtype) - mean)
    return (grid / (torch.tensor(shape, dtype=dtype) / 2)).flip(-1)


def image_in_float64(
    transform: SpatialTransform, params: dict[str, Any], image: np.ndarray
) -> np.ndarray:
    """The resampled image, everything in float64."""
    shift = transform.padding_value_image if transform.padding_mode_image == "constant" else 0.0
    grid = sampling_grid(transform, params, image.shape[1:], torch.float64)
    source = torch.from_numpy(image.astype(np.float64)) - shift
    sampled = grid_sample(
        source[None],
        grid[None],
        mode=transform.mode_image,
        padding_mode="zeros",
        align_corners=transform.align_corners,
    )
    return sampled[0].numpy() + shift


def label_weights_in_float64(
    transform: SpatialTransform, params: dict[str, Any], labels: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(labels, weights) of one channel: which there are, and each one's interpolated one-hot
    weight, in float64.
    """
    pad = transform.padding_value_seg if transform.border_mode_seg == "constant" else 0
    values = np.unique(np.append(labels, np.asarray(pad).astype(labels.dtype)))
    grid = sampling_grid(transform, params, labels.shape, torch.float64)[None]
    weights = []
    for value in values:
        outside = float(value == pad)
        one_hot = torch.from_numpy((labels == value).astype(np.float64))[None, None] - outside
        sampled = grid_sample(
            one_hot,
            grid,
            mode=transform.mode_seg,
            padding_mode="zeros",
            align_corners=transform.align_corners,
        )
        weights.append(sampled[0, 0].numpy() + outside)
    return values, np.stack(weights)
