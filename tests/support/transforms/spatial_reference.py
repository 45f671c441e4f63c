"""References for `SpatialTransform`: batchgeneratorsv2's grid, and resampling in float64.

The grid is computed in float32, as batchgeneratorsv2 does it, or in float64.
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
    """Return detaug's params as batchgeneratorsv2's `_apply_to_...` methods take them.

    Args:
        transform: detaug's transform.
        params: what it drew.
        shape: spatial shape of the input, in voxels.
    """
    grid = None
    if params["affine"] is not None or params["elastic"] is not None:
        grid = sampling_grid(transform, params, shape, torch.float32)
    return {"grid": grid, "center_location_in_pixels": params["center_location_in_pixels"]}


def sampling_grid(
    transform: SpatialTransform, params: dict[str, Any], shape: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """Return the patch's grid (*patch, dims) in `grid_sample`'s coordinates: -1 to 1, x first."""
    patch = transform.patch_size
    axes = [torch.arange(n, dtype=dtype) - (n - 1) / 2 for n in patch]
    grid = torch.stack(torch.meshgrid(*axes, indexing="ij"), -1)
    mean: Any = 0
    if params["elastic"] is not None:
        field, _ = displacement(patch, **params["elastic"])
        offsets = np.moveaxis(field[-len(patch) :].reshape(-1, *patch), 0, -1)
        grid = grid + torch.from_numpy(offsets.copy()).to(dtype)
    if params["affine"] is not None:
        grid = grid @ torch.tensor(params["affine"], dtype=torch.float64).T.to(dtype)
    if transform.center_deformation and params["elastic"] is not None:
        mean = grid.mean(dim=list(range(len(patch))))
    center_in_voxels = params["center_location_in_pixels"]
    center = torch.tensor([c - n / 2 for c, n in zip(center_in_voxels, shape, strict=True)])
    grid = grid + (center.to(dtype) - mean)
    return (grid / (torch.tensor(shape, dtype=dtype) / 2)).flip(-1)


def image_in_float64(
    transform: SpatialTransform, params: dict[str, Any], image: np.ndarray
) -> np.ndarray:
    """Return the resampled image (C, *patch), with everything computed in float64."""
    # `grid_sample` pads with zeros, so the padding value is subtracted before and added after.
    shift = 0.0
    if transform.padding_mode_image == "constant":
        shift = transform.padding_value_image
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
    """Return (labels, weights) of one channel.

    Weight i, float64 (*patch), is the interpolated one-hot encoding of label i.
    """
    pad = 0
    if transform.border_mode_seg == "constant":
        pad = transform.padding_value_seg
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
