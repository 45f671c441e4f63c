"""Images and labels resampled to the nearest voxel: one kernel for both.

Indices of voxels are whole numbers in float64 until the moment they are used: floor, comparison and multiplication are
vector operations on all CPUs, and a source may have any number of voxels.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.coordinates import (
    CONSTANT,
    LINE,
    ORIGIN,
    PIECE,
    PITCH,
    PLANE,
    Map,
    bring_inside,
    nearest_voxel,
    place_row,
)


@inlined
def _find_piece(rows: Any, length: Any, shape: Any, places: Any) -> None:
    """The index of each voxel's nearest one in the source, as a float64; negative where that is outside."""
    plane = np.float64(shape[PLANE])
    line = np.float64(shape[LINE])
    origin = np.float64(shape[ORIGIN])
    last_x = np.float64(shape[0] - 1)
    last_y = np.float64(shape[1] - 1)
    last_z = np.float64(shape[2] - 1)
    for k in range(length):
        x = nearest_voxel(rows[k])
        y = nearest_voxel(rows[PITCH + k])
        z = nearest_voxel(rows[2 * PITCH + k])
        inside = (x >= 0.0) & (x <= last_x) & (y >= 0.0) & (y <= last_y) & (z >= 0.0) & (z <= last_z)
        places[k] = x * plane + (y * line + (z - origin)) if inside else -1.0


_WHERE = "int64[::1], float64[:, ::1], float64[::1], float32[:, :, :, ::1], int64, int64, int64"


@kernel(
    f"void(float32[:, ::1], float32[:, :, :, ::1], {_WHERE}, float64, boolean, boolean)",
    f"void(int16[:, ::1], int16[:, :, :, ::1], {_WHERE}, int16, boolean, boolean)",
)
def resample_nearest(
    source: Any, out: Any, shape: Any, matrix: Any, offset: Any, displacement: Any,
    first: Any, last: Any, padding: Any, value: Any, align_corners: Any, flat: Any,
) -> None:  # fmt: skip
    """Planes ``first`` to ``last`` (excluded) of a patch, all channels.

    Args: as `detaug.kernels.resampling.resample_images`, but also for labels.
    """
    rows = np.empty(3 * PITCH, np.float64)
    places = np.empty(PIECE, np.float64)
    patch_map = Map(matrix, offset, displacement, first)
    for row in range(first * out.shape[2], last * out.shape[2]):
        i, j = row // out.shape[2], row % out.shape[2]
        for begin in range(0, out.shape[3], PIECE):
            size = min(PIECE, out.shape[3] - begin)
            place_row(rows, patch_map, i, j, begin, size)
            if padding != CONSTANT:
                bring_inside(rows, size, shape, padding, align_corners, flat)
            _find_piece(rows, size, shape, places)
            for c in range(source.shape[0]):
                voxels = source[c]
                line = out[c, i, j, begin : begin + size]
                for k in range(size):
                    place = np.int64(places[k])
                    if place < 0:
                        line[k] = value
                    else:
                        line[k] = voxels[np.uint64(place)]
