"""Keypoints and bounding boxes: what their numbers mean, and how they follow a map of space.

- ``keypoints``: (N, 2) or (N, 3), coordinates in voxels, in the order of the array's spatial axes. The centre of
  voxel i is at i; a voxel spans i - 0.5 to i + 0.5.
- ``bbox``: (N, 4) or (N, 6), the lower corner and then the upper one, in the same coordinates: a box around voxels
  3, 4 and 5 of an axis goes from 2.5 to 5.5 there. What comes out of a map is the axis-aligned box around the images of
  all 4 or 8 corners, which is larger than the object where the map turns.
- Nothing is dropped and nothing is clipped: row i stays row i, wherever it goes, so that labels keep their objects.
- A row that holds NaN or an infinity (an object that is absent, say) passes through as it is.
- float16, float32 and float64 are kept; integers come back as float32 when a transform changes them. Arithmetic is in
  float64.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from itertools import product
from typing import Any

import numpy as np

from detaug.transforms.building.workspace import VOXEL_KEYS, Workspace

PointMap = Callable[[np.ndarray], np.ndarray]


def map_points(points: np.ndarray, matrix: Sequence[Sequence[float]], offset: Sequence[float]) -> np.ndarray:
    """``matrix @ p + offset`` for every row p of (N, d) points, in float64 and summed in the order of the columns, so
    that no BLAS has a say in the last bit.
    """
    wanted = np.asarray(points, dtype=np.float64)
    result = np.empty_like(wanted)
    for row, (factors, shift) in enumerate(zip(matrix, offset, strict=True)):
        total = wanted[:, 0] * float(factors[0])
        for column in range(1, wanted.shape[1]):
            total = total + wanted[:, column] * float(factors[column])
        result[:, row] = total + float(shift)
    return result


def map_rows(key: str, rows: np.ndarray, dims: int, function: PointMap) -> np.ndarray:
    """``keypoints`` (N, dims) or ``bbox`` (N, 2 dims) under a function that takes and gives (N, dims) float64 arrays. ValueError,
    TypeError: rows of another shape or kind."""
    columns = dims if key == "keypoints" else 2 * dims
    if rows.ndim != 2 or rows.shape[1] != columns:
        raise ValueError(f"{key} of a {dims}-D sample must have shape (N, {columns}), got {rows.shape}")
    if rows.dtype.kind not in "fiu":
        raise TypeError(f"{key} must be numbers, got {rows.dtype}")
    finite = np.isfinite(rows).all(axis=1)
    result = rows.astype(rows.dtype if rows.dtype.kind == "f" else np.float32)
    if finite.any():
        ends = rows[finite].astype(np.float64).reshape(finite.sum(), -1, dims)
        corners = [
            function(np.stack([ends[:, end, axis] for axis, end in enumerate(which)], axis=1))
            for which in product(range(ends.shape[1]), repeat=dims)
        ]
        around = [reduce(np.minimum, corners), reduce(np.maximum, corners)]
        result[finite] = np.concatenate(around, axis=1)[:, : rows.shape[1]]  # a point's corner is itself
    return result


def move_points(workspace: Workspace, dims: int, function: PointMap) -> None:
    """Apply a map of points to the ``keypoints`` and the ``bbox`` of a workspace, where it has them."""
    for key in ("keypoints", "bbox"):
        if key in workspace:
            workspace.put(key, map_rows(key, workspace[key], dims, function))


def spatial_shape(shapes: Mapping[str, Any]) -> tuple[int, ...]:
    """The spatial shape that a sample's images and segmentation have in common; a ValueError if there is none."""
    spaces = {key: tuple(shapes[key][1:]) for key in VOXEL_KEYS if shapes.get(key) is not None}
    if len(set(spaces.values())) > 1:
        raise ValueError(f"the sample's arrays differ in their spatial shape: {spaces}")
    if not spaces:
        raise ValueError(
            f"the sample has none of {', '.join(VOXEL_KEYS)}, so that its spatial shape is not known (to inverse, pass its "
            "shapes, as in inverse(params, {'image': image.shape}))"
        )
    return next(iter(spaces.values()))


def in_space(shapes: Mapping[str, Any], space: Sequence[int]) -> dict[str, Any]:
    """The same shapes, those of arrays of voxels in another space."""
    return {**shapes, **{key: (shapes[key][0], *space) for key in VOXEL_KEYS if shapes.get(key) is not None}}
