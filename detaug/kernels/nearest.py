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
    LINEAR,
    ORIGIN,
    PIECE,
    PITCH,
    PLANE,
    STRIDE_AHEAD,
    Map,
    Sampling,
    bring_inside,
    distance_ahead,
    nearest_voxel,
    place_row,
)
from detaug.kernels.pointers import prefetch
from detaug.kernels.tiles import (
    DEPTH,
    LENGTH,
    LINES,
    SHEET,
    expect_sheet,
    is_tiled,
    next_tile,
    number_of,
    start_of,
    step_along,
)


@inlined
def _find_piece(rows: Any, length: Any, shape: Any, flat: Any, places: Any) -> None:
    """The index of each voxel's nearest one in the source, as a float64; negative where that is outside."""
    plane = np.float64(shape[PLANE])
    line = np.float64(shape[LINE])
    origin = np.float64(shape[ORIGIN])
    last_x = np.float64(shape[0] - 1)
    last_y = np.float64(shape[1] - 1)
    last_z = np.float64(shape[2] - 1)
    if flat:
        for k in range(length):
            y = nearest_voxel(rows[PITCH + k])
            z = nearest_voxel(rows[2 * PITCH + k])
            inside = (y >= 0.0) & (y <= last_y) & (z >= 0.0) & (z <= last_z)
            places[k] = y * line + (z - origin) if inside else -1.0
        return
    for k in range(length):
        x = nearest_voxel(rows[k])
        y = nearest_voxel(rows[PITCH + k])
        z = nearest_voxel(rows[2 * PITCH + k])
        inside = (x >= 0.0) & (x <= last_x) & (y >= 0.0) & (y <= last_y) & (z >= 0.0) & (z <= last_z)
        places[k] = x * plane + (y * line + (z - origin)) if inside else -1.0


@inlined
def _find_sheet(patch_map: Any, i: Any, j0: Any, shape: Any, steps: Any, index: Any) -> None:
    """The same for a plane of a tile, where all is inside, as an int32. ``steps``: see `step_along`."""
    matrix, offset, _, _ = patch_map
    plane = np.float64(shape[PLANE])
    line = np.float64(shape[LINE])
    origin = np.float64(shape[ORIGIN])
    n = np.uint64(0)
    for j in range(j0, j0 + LINES):
        bx = offset[0] + (matrix[0, 0] * i + matrix[0, 1] * j)
        by = offset[1] + (matrix[1, 0] * i + matrix[1, 1] * j)
        bz = offset[2] + (matrix[2, 0] * i + matrix[2, 1] * j)
        for k in range(np.uint64(LENGTH)):
            x = nearest_voxel(bx + steps[k])
            y = nearest_voxel(by + steps[np.uint64(LENGTH) + k])
            z = nearest_voxel(bz + steps[np.uint64(2 * LENGTH) + k])
            index[n + k] = np.int32(x * plane + (y * line + (z - origin)))
        n += np.uint64(LENGTH)


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
    steps = np.empty(3 * LENGTH, np.float64)
    index = np.empty(SHEET, np.int32)
    rows_ahead = distance_ahead(matrix, shape)
    patch_map = Map(matrix, offset, displacement, first)
    sampling = Sampling(shape, LINEAR, padding, align_corners, flat)
    lines, length = out.shape[2], out.shape[3]
    columns = number_of(lines, LINES)
    for block in range(number_of(last - first, DEPTH) * columns):
        i0 = first + block // columns * DEPTH
        i1 = min(i0 + DEPTH, last)
        j0 = start_of(block % columns, lines, LINES)
        j1 = min(j0 + LINES, lines)
        if is_tiled(patch_map, i0, i1, j0, j1, out[0].size, length, sampling, source.shape[1]):
            for tile in range(number_of(length, LENGTH)):
                k0 = start_of(tile, length, LENGTH)
                next_j, next_k, ahead = next_tile(tile, j0, length, matrix, shape)
                step_along(matrix, k0, steps)
                for i in range(i0, i1):
                    _find_sheet(patch_map, i, j0, shape, steps, index)
                    for c in range(source.shape[0]):
                        voxels = source[c]
                        expect_sheet(out[c, i], next_j, next_k)
                        for k in range(0, SHEET, STRIDE_AHEAD):
                            prefetch(voxels, np.intp(index[k]) + ahead)
                        for j in range(LINES):
                            line = out[c, i, j0 + j, k0 : k0 + LENGTH]
                            at = np.uint64(j * LENGTH)
                            for k in range(np.uint64(LENGTH)):
                                line[k] = voxels[np.uint64(index[at + k])]
            continue
        for i in range(i0, i1):
            for j in range(block % columns * LINES, j1):
                for begin in range(0, length, PIECE):
                    size = min(PIECE, length - begin)
                    place_row(rows, patch_map, i, j, begin, size)
                    if padding != CONSTANT:
                        bring_inside(rows, size, shape, padding, align_corners, flat)
                    _find_piece(rows, size, shape, flat, places)
                    for c in range(source.shape[0]):
                        voxels = source[c]
                        for k in range(0, size, STRIDE_AHEAD):
                            prefetch(voxels, np.intp(places[k]) + rows_ahead)
                        line = out[c, i, j, begin : begin + size]
                        for k in range(size):
                            place = np.int64(places[k])
                            if place < 0:
                                line[k] = value
                            else:
                                line[k] = voxels[np.uint64(place)]
