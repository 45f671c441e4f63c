"""Images resampled linearly through an affine map, with or without a displacement field: no grid of coordinates is made."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.coordinates import (
    CONSTANT,
    FRACTIONS,
    LINE,
    LINEAR,
    ORIGIN,
    PIECE,
    PITCH,
    PLANE,
    Map,
    Sampling,
    distance_ahead,
    place_and_split,
    split_piece,
    tap_piece,
    touches_nothing,
)
from detaug.kernels.pointers import load_float_pair
from detaug.kernels.tiles import (
    DEPTH,
    LENGTH,
    LINES,
    SHEET,
    VOXELS,
    expect_sheet,
    fetch,
    is_tiled,
    next_tile,
    number_of,
    place_tile,
    start_of,
)


@inlined
def _gather(source: Any, count: Any, shape: Any, flat: Any, index: Any, pairs: Any) -> None:
    line = np.intp(shape[LINE])
    if flat:
        for k in range(count):
            p = np.intp(index[k])
            pairs[k] = load_float_pair(source, p)
            pairs[PITCH + k] = load_float_pair(source, p + line)
        return
    plane = np.intp(shape[PLANE])
    for k in range(count):
        p = np.intp(index[k])
        pairs[k] = load_float_pair(source, p)
        pairs[PITCH + k] = load_float_pair(source, p + line)
        pairs[2 * PITCH + k] = load_float_pair(source, p + plane)
        pairs[3 * PITCH + k] = load_float_pair(source, p + plane + line)


@inlined
def _blend(out: Any, count: Any, flat: Any, rest: Any, first: Any, values: Any) -> None:
    """Along z, then y, then x; ``values`` holds both ends of each z pair beside each other. The fractions are those that
    ``rest`` has from ``first`` on."""
    n = np.uint64(first)
    y = np.uint64(first + FRACTIONS)
    z = np.uint64(first + 2 * FRACTIONS)
    if flat:
        for k in range(count):
            f = rest[z + np.uint64(k)]
            a = values[2 * k]
            b = values[2 * PITCH + 2 * k]
            a = a + f * (values[2 * k + 1] - a)
            b = b + f * (values[2 * PITCH + 2 * k + 1] - b)
            out[k] = a + rest[y + np.uint64(k)] * (b - a)
        return
    for k in range(count):
        f = rest[z + np.uint64(k)]
        a = values[2 * k]
        b = values[2 * PITCH + 2 * k]
        c = values[4 * PITCH + 2 * k]
        d = values[6 * PITCH + 2 * k]
        a = a + f * (values[2 * k + 1] - a)
        b = b + f * (values[2 * PITCH + 2 * k + 1] - b)
        c = c + f * (values[4 * PITCH + 2 * k + 1] - c)
        d = d + f * (values[6 * PITCH + 2 * k + 1] - d)
        f = rest[y + np.uint64(k)]
        a = a + f * (b - a)
        c = c + f * (d - c)
        out[k] = a + rest[n + np.uint64(k)] * (c - a)


@inlined
def sample_taps(
    source: Any, out: Any, rows: Any, length: Any, sampling: Any, value: Any, count: Any, index: Any, weight: Any
) -> None:
    """The voxels of a piece of one channel, one at a time: weighted sums over taps, in float64."""
    shape, _, padding, _, flat = sampling
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
                            total += share * np.float64(source[x * shape[PLANE] + y * shape[LINE] + z - shape[ORIGIN]])
        out[k] = np.float32(total)


@kernel(
    "void(float32[:, ::1], float32[:, :, :, ::1], int64[::1], float64[:, ::1], float64[::1], float32[:, :, :, ::1],"
    " int64, int64, int64, float64, boolean, boolean)"
)
def resample_images(
    source: Any, out: Any, shape: Any, matrix: Any, offset: Any, displacement: Any,
    first: Any, last: Any, padding: Any, value: Any, align_corners: Any, flat: Any,
) -> None:  # fmt: skip
    """Planes ``first`` to ``last`` (excluded) of a patch, all channels.

    Args:
        source: (C, voxels), each channel flat: a window of a volume, or all of it.
        shape: (6,), where a window lies in its volume (see `detaug.kernels.coordinates.layout`).
        out: (C, X, Y, Z), the patch.
        matrix, offset, displacement: see `detaug.kernels.coordinates`.
        padding: one of its constants; ``value`` lies outside with a constant border.
        flat: two-dimensional (``shape[0] == 1``).
    """
    rows = np.empty(3 * PITCH, np.float64)
    rest = np.empty(3 * FRACTIONS, np.float32)
    index = np.empty(VOXELS, np.int32)
    pairs = np.empty(4 * PITCH, np.uint64)
    values = pairs.view(np.float32)
    steps = np.empty(3 * LENGTH, np.float64)
    tap_index = np.zeros(12 * PITCH, np.int64)
    tap_weight = np.empty(12 * PITCH, np.float64)
    patch_map = Map(matrix, offset, displacement, first)
    sampling = Sampling(shape, LINEAR, padding, align_corners, flat)
    rows_ahead = distance_ahead(matrix, shape)
    lines, length = out.shape[2], out.shape[3]
    columns = number_of(lines, LINES)
    for number in range(number_of(last - first, DEPTH) * columns):
        i0 = first + number // columns * DEPTH
        i1 = min(i0 + DEPTH, last)
        j0 = start_of(number % columns, lines, LINES)
        j1 = min(j0 + LINES, lines)
        if is_tiled(patch_map, i0, i1, j0, j1, out[0].size, length, sampling, source.shape[1]):
            for tile in range(number_of(length, LENGTH)):
                k0 = start_of(tile, length, LENGTH)
                place_tile(patch_map, i0, i1, j0, k0, shape, steps, index, rest)
                next_j, next_k, ahead = next_tile(tile, j0, length, matrix, shape)
                for c in range(source.shape[0]):
                    for i in range(i0, i1):
                        sheet = (i - i0) * SHEET
                        expect_sheet(out[c, i], next_j, next_k)
                        fetch(source[c], np.intp(SHEET), shape, index[sheet:], ahead)
                        _gather(source[c], np.intp(SHEET), shape, False, index[sheet:], pairs)
                        for j in range(LINES):
                            at = j * LENGTH
                            line = out[c, i, j0 + j, k0 : k0 + LENGTH]
                            _blend(line, np.intp(LENGTH), np.bool_(False), rest, sheet + at, values[2 * at :])
            continue
        j0 = number % columns * LINES
        for row in range((i1 - i0) * (j1 - j0)):
            i = i0 + row // (j1 - j0)
            j = j0 + row % (j1 - j0)
            for begin in range(0, length, PIECE):
                size = min(PIECE, length - begin)
                start, stop, low, high, _ = place_and_split(
                    rows, patch_map, i, j, begin, size, sampling, source.shape[1], index, rest
                )
                if stop > start:
                    for c in range(source.shape[0]):
                        if flat:  # a plane stays in the cache
                            _gather(source[c], stop - start, shape, True, index, pairs)
                        else:
                            fetch(source[c], stop - start, shape, index, rows_ahead)
                            _gather(source[c], stop - start, shape, False, index, pairs)
                        _blend(out[c, i, j, begin + start : begin + stop], stop - start, flat, rest, np.intp(0), values)
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
                                source[c], out[c, i, j, begin + one : begin + other], part, other - one, sampling,
                                value, count, tap_index, tap_weight,
                            )  # fmt: skip


@kernel("void(float32[::1], float32[:,:,::1], int64[::1], int64[::1], float64[:,::1], float64[::1], float32, boolean)")
def resample_held(
    source: Any, out: Any, extents: Any, shape: Any, matrix: Any, offset: Any, outside: Any, flat: Any
) -> None:
    """A volume through a straight map, linearly, with the border of ITK: values are held for half a voxel beyond the centres
    of the outermost ones, and farther out all is ``outside``.

    Args:
        source: (voxels,), flat, of at least two voxels along each axis that counts.
        out: (X, Y, Z).
        extents: (3,), those of the volume itself: 1 where its only plane is there twice.
        shape: (6,), the layout of ``source``.
        matrix, offset, flat: see `detaug.kernels.coordinates`.
    """
    rows = np.empty(3 * PITCH, np.float64)
    rest = np.empty(3 * FRACTIONS, np.float32)
    index = np.empty(PIECE, np.int32)
    pairs = np.empty(4 * PITCH, np.uint64)
    values = pairs.view(np.float32)
    first = 1 if flat else 0
    ahead = distance_ahead(matrix, shape)
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            for begin in range(0, out.shape[2], PIECE):
                length = min(PIECE, out.shape[2] - begin)
                low, high = 0, length
                for axis in range(first, 3):
                    row = rows[axis * PITCH : axis * PITCH + length]
                    base = offset[axis] + (matrix[axis, 0] * i + matrix[axis, 1] * j)
                    last = np.float64(extents[axis] - 1)
                    for k in range(length):
                        row[k] = base + np.float64(np.int32(begin + k)) * matrix[axis, 2]
                    while low < high and not ((row[low] >= -0.5) & (row[low] < last + 0.5)):
                        low += 1
                    while low < high and not ((row[high - 1] >= -0.5) & (row[high - 1] < last + 0.5)):
                        high -= 1
                    for k in range(length):
                        row[k] = min(max(row[k], 0.0), last)
                line = out[i, j, begin : begin + length]
                line[:low] = outside
                line[high:] = outside
                if low < high:
                    split_piece(rows[low:], high - low, shape, flat, index, rest)
                    if flat:
                        _gather(source, high - low, shape, True, index, pairs)
                    else:
                        fetch(source, high - low, shape, index, ahead)
                        _gather(source, high - low, shape, False, index, pairs)
                    _blend(line[low:high], high - low, flat, rest, np.intp(0), values)
