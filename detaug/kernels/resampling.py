"""Images resampled through an affine map, with or without a displacement field.

No grid of coordinates is made.
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
    Map,
    Sampling,
    nearest_voxel,
    place_axes,
    place_piece,
    place_row,
    row_of,
    split_piece,
    split_straight,
    tap_piece,
    touches_nothing,
)
from detaug.kernels.lanes import load_pair

WHERE = "int64[::1], float64[:, ::1], float64[::1], float32[:, :, :, ::1]"


@inlined
def gather(source: Any, count: Any, shape: Any, flat: Any, index: Any, pairs: Any) -> None:
    """Read the neighbours of a piece's voxels, two in each of four parts.

    In a plane there are two parts.
    """
    for part in range(1 if flat else 3, -1, -1):
        step = np.intp((part & 1) * shape[LINE] + (part >> 1) * shape[PLANE])
        row = pairs[part * PITCH :]
        for k in range(count):
            row[k] = load_pair(source, np.intp(index[k]) + step)


@inlined
def _blend(out: Any, count: Any, flat: Any, rest: Any, values: Any) -> None:
    """Interpolate along z, then y, then x, by the fractions in ``rest``.

    ``values`` holds both ends of each z pair next to each other.
    """
    if flat:
        for k in range(count):
            f = rest[2 * PITCH + k]
            a = values[2 * k]
            b = values[2 * PITCH + 2 * k]
            a = a + f * (values[2 * k + 1] - a)
            b = b + f * (values[2 * PITCH + 2 * k + 1] - b)
            out[k] = a + rest[PITCH + k] * (b - a)
        return
    for k in range(count):
        f = rest[2 * PITCH + k]
        a = values[2 * k]
        b = values[2 * PITCH + 2 * k]
        c = values[4 * PITCH + 2 * k]
        d = values[6 * PITCH + 2 * k]
        a = a + f * (values[2 * k + 1] - a)
        b = b + f * (values[2 * PITCH + 2 * k + 1] - b)
        c = c + f * (values[4 * PITCH + 2 * k + 1] - c)
        d = d + f * (values[6 * PITCH + 2 * k + 1] - d)
        f = rest[PITCH + k]
        a = a + f * (b - a)
        c = c + f * (d - c)
        out[k] = a + rest[k] * (c - a)


@inlined
def sample_taps(
    source: Any,
    out: Any,
    rows: Any,
    length: Any,
    sampling: Any,
    value: Any,
    count: Any,
    index: Any,
    weight: Any,
) -> None:
    """Write the voxels of a piece of one channel, one at a time, as weighted sums over taps.

    The sums are in float64.
    """
    shape, _, padding, flat = sampling
    for k in range(length):
        if padding == CONSTANT and touches_nothing(rows, k, shape, count // 2 - 1, flat):
            out[k] = np.float32(value)
            continue
        total = 0.0
        for a in range(1 if flat else count):
            x = 0 if flat else index[a * PITCH + k]
            wx = 1.0 if flat else weight[a * PITCH + k]
            for b in range(count):
                y = index[(4 + b) * PITCH + k]
                wy = wx * weight[(4 + b) * PITCH + k]
                for c in range(count):
                    z = index[(8 + c) * PITCH + k]
                    share = wy * weight[(8 + c) * PITCH + k]
                    if share != 0.0:
                        if (x < 0) | (y < 0) | (z < 0):
                            total += share * value
                        else:
                            total += share * np.float64(
                                source[x * shape[PLANE] + y * shape[LINE] + z - shape[ORIGIN]]
                            )
        out[k] = np.float32(total)


@inlined
def _scale_plane(
    source: Any, start: Any, line: Any, low: Any, part: Any, pairs: Any, lines: Any, out: Any
) -> None:
    """Interpolate the plane that begins at ``start`` along z, then y.

    Its last two interpolated lines are kept.
    """
    values = pairs.view(np.float32)
    even: Any = np.int64(-1)
    odd: Any = np.int64(-1)
    for j in range(out.shape[0]):
        for y in range(low[1, j], low[1, j] + 2):
            if y != (odd if y & 1 else even):
                even, odd = (even, y) if y & 1 else (y, odd)
                line_out = lines[y & 1]
                for k in range(out.shape[1]):
                    pairs[k] = load_pair(source, np.intp(start + y * line + low[2, k]))
                for k in range(out.shape[1]):
                    line_out[k] = values[2 * k] + part[2, k] * (values[2 * k + 1] - values[2 * k])
        one = lines[low[1, j] & 1]
        other = lines[1 - (low[1, j] & 1)]
        for k in range(out.shape[1]):
            out[j, k] = one[k] + part[1, j] * (other[k] - one[k])


@inlined
def _scale(source: Any, out: Any, shape: Any, flat: Any, low: Any, part: Any) -> None:
    """Resample a patch that is scaled, not turned.

    Each plane of the source is interpolated once for all voxels next to it.

    A voxel's arithmetic is that of `_blend`, step by step: the bytes are the same.
    """
    lines = np.empty((2, out.shape[3]), np.float32)
    pairs = np.empty(out.shape[3], np.uint64)
    planes = np.empty((2, out.shape[2], out.shape[3]), np.float32)
    for c in range(source.shape[0]):
        if flat:
            _scale_plane(source[c], -shape[ORIGIN], shape[LINE], low, part, pairs, lines, out[c, 0])
            continue
        even: Any = np.int64(-1)
        odd: Any = np.int64(-1)
        for i in range(out.shape[1]):
            for x in range(low[0, i], low[0, i] + 2):
                if x != (odd if x & 1 else even):
                    even, odd = (even, x) if x & 1 else (x, odd)
                    start = x * shape[PLANE] - shape[ORIGIN]
                    _scale_plane(
                        source[c], start, shape[LINE], low, part, pairs, lines, planes[x & 1]
                    )
            one = planes[low[0, i] & 1].reshape(-1)
            other = planes[1 - (low[0, i] & 1)].reshape(-1)
            line_out = out[c, i].reshape(-1)
            for k in range(line_out.shape[0]):
                line_out[k] = one[k] + part[0, i] * (other[k] - one[k])


@kernel(f"void(float32[:, ::1], float32[:, :, :, ::1], {WHERE}, int64, float64, boolean)")
def resample_images(
    source: Any,
    out: Any,
    shape: Any,
    matrix: Any,
    offset: Any,
    displacement: Any,
    padding: Any,
    value: Any,
    flat: Any,
) -> None:
    """Resample all channels of a patch.

    Args:
        source: (C, voxels), each channel flat: a window of a volume, or all of it.
        shape: (6,), where a window lies in its volume (see `detaug.kernels.coordinates.layout`).
        out: (C, X, Y, Z), the patch.
        matrix, offset, displacement: see `detaug.kernels.coordinates`.
        padding: one of its constants; ``value`` lies outside with a constant border.
        flat: two-dimensional (``shape[0] == 1``).
    """
    rows = np.empty(3 * PITCH, np.float64)
    rest = np.empty(3 * PITCH, np.float32)
    index = np.empty(PIECE, np.int32)
    pairs = np.empty(4 * PITCH, np.uint64)
    values = pairs.view(np.float32)
    tap_index = np.zeros(12 * PITCH, np.int64)
    tap_weight = np.empty(12 * PITCH, np.float64)
    patch_map = Map(matrix, offset, displacement)
    sampling = Sampling(shape, LINEAR, padding, flat)
    straight = (displacement.size == 0) & (source.shape[1] < 2**31)
    if straight:
        most = max(out.shape[1], out.shape[2], out.shape[3])
        lower = np.empty((3, most), np.int64)
        parts = np.empty((3, most), np.float32)
        if place_axes(patch_map, out.shape[1:], shape, flat, lower, parts):
            _scale(source, out, shape, flat, lower, parts)
            return
    for number in range(out.shape[1] * out.shape[2]):
        i, j = row_of(number, out.shape[1], out.shape[2])
        for begin in range(0, out.shape[3], PIECE):
            size = min(PIECE, out.shape[3] - begin)
            start = 0
            stop = size
            low = 0
            high = size
            if not (
                straight and split_straight(patch_map, i, j, begin, size, shape, flat, index, rest)
            ):
                start, stop, low, high = place_piece(
                    rows, patch_map, i, j, begin, size, sampling, source.shape[1]
                )
                split_piece(rows[start:], stop - start, shape, flat, index, rest)
            if stop > start:
                for c in range(source.shape[0]):
                    gather(source[c], stop - start, shape, flat, index, pairs)
                    _blend(
                        out[c, i, j, begin + start : begin + stop], stop - start, flat, rest, values
                    )
            if high - low < size:
                for c in range(source.shape[0]):
                    out[c, i, j, begin : begin + low] = np.float32(value)
                    out[c, i, j, begin + high : begin + size] = np.float32(value)
            for side in range(2):
                one, other = (low, start) if side == 0 else (stop, high)
                if one < other:
                    part = rows[one:]
                    count = tap_piece(part, other - one, sampling, tap_index, tap_weight)
                    for c in range(source.shape[0]):
                        sample_taps(
                            source[c],
                            out[c, i, j, begin + one : begin + other],
                            part,
                            other - one,
                            sampling,
                            value,
                            count,
                            tap_index,
                            tap_weight,
                        )


@inlined
def _find_piece(rows: Any, length: Any, shape: Any, places: Any) -> None:
    """Write the index of each voxel's nearest one in the source; negative where that is outside.

    Indices are whole numbers in float64 until they are used: floor, comparison and multiplication
    are vector operations on all CPUs, and a source may have any number of voxels.
    """
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
        inside = (
            (x >= 0.0) & (x <= last_x) & (y >= 0.0) & (y <= last_y) & (z >= 0.0) & (z <= last_z)
        )
        places[k] = x * plane + (y * line + (z - origin)) if inside else -1.0


@kernel(
    f"void(float32[:, ::1], float32[:, :, :, ::1], {WHERE}, float64)",
    f"void(int16[:, ::1], int16[:, :, :, ::1], {WHERE}, int16)",
    f"void(int32[:, ::1], int32[:, :, :, ::1], {WHERE}, int32)",
)
def resample_nearest(
    source: Any, out: Any, shape: Any, matrix: Any, offset: Any, displacement: Any, value: Any
) -> None:
    """Resample all channels of a patch to the nearest voxels.

    Arguments are those of `resample_images`; ``value`` lies outside.
    """
    rows = np.empty(3 * PITCH, np.float64)
    places = np.empty(PIECE, np.float64)
    patch_map = Map(matrix, offset, displacement)
    for row in range(out.shape[1] * out.shape[2]):
        i = row // out.shape[2]
        j = row % out.shape[2]
        for begin in range(0, out.shape[3], PIECE):
            size = min(PIECE, out.shape[3] - begin)
            place_row(rows, patch_map, i, j, begin, size)
            _find_piece(rows, size, shape, places)
            for c in range(source.shape[0]):
                voxels = source[c]
                line = out[c, i, j, begin : begin + size]
                for k in range(size):
                    nearest_index = np.int64(places[k])
                    if nearest_index < 0:
                        line[k] = value
                    else:
                        line[k] = voxels[np.uint64(nearest_index)]
