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
    MOST_TAPS,
    ORIGIN,
    PIECE,
    PITCH,
    PLANE,
    Map,
    Parts,
    Piece,
    Sampling,
    end_of_piece,
    find_taps,
    has_no_tap_inside,
    locate_piece,
    locate_row,
    nearest_voxel,
    row_of,
    split_axes,
    split_points,
    split_straight_piece,
)
from detaug.kernels.lanes import load_pair

#: The types of ``shape, matrix, offset, displacement`` in kernels' signatures.
WHERE = "int64[::1], float64[:, ::1], float64[::1], float32[:, :, :, ::1]"


@inlined
def gather(source: Any, count: Any, shape: Any, is_flat: Any, lowest: Any, pairs: Any) -> None:
    """Read the neighbours of voxels, two along z at a time.

    Args:
        source: one channel, flat.
        count: of voxels.
        shape: from `layout`.
        is_flat: the source is a plane.
        lowest: (count,) int32, each voxel's lowest neighbour.
        pairs: as `load_pair` gives them; in the parts those at (x, y), (x, y + 1), (x + 1, y) and
            (x + 1, y + 1). A plane has the first two.
    """
    # The lower bit of a part's number is its step in y, the upper bit its step in x.
    for part in range(1 if is_flat else 3, -1, -1):
        step = np.intp((part & 1) * shape[LINE] + (part >> 1) * shape[PLANE])
        pairs_of_part = pairs[part * PITCH :]
        for k in range(count):
            pairs_of_part[k] = load_pair(source, np.intp(lowest[k]) + step)


@inlined
def _blend(out: Any, count: Any, is_flat: Any, fractions: Any, values: Any) -> None:
    """Interpolate along z, then y, then x.

    Args:
        out: (count,) float32.
        count: of voxels.
        is_flat: the source is a plane.
        fractions: from `split_points`.
        values: the pairs of `gather` as float32: both ends next to each other.
    """
    if is_flat:
        for k in range(count):
            z = fractions[2 * PITCH + k]
            line0 = values[2 * k]
            line1 = values[2 * PITCH + 2 * k]
            line0 = line0 + z * (values[2 * k + 1] - line0)
            line1 = line1 + z * (values[2 * PITCH + 2 * k + 1] - line1)
            out[k] = line0 + fractions[PITCH + k] * (line1 - line0)
        return
    for k in range(count):
        z = fractions[2 * PITCH + k]
        line00 = values[2 * k]
        line01 = values[2 * PITCH + 2 * k]
        line10 = values[4 * PITCH + 2 * k]
        line11 = values[6 * PITCH + 2 * k]
        line00 = line00 + z * (values[2 * k + 1] - line00)
        line01 = line01 + z * (values[2 * PITCH + 2 * k + 1] - line01)
        line10 = line10 + z * (values[4 * PITCH + 2 * k + 1] - line10)
        line11 = line11 + z * (values[6 * PITCH + 2 * k + 1] - line11)
        y = fractions[PITCH + k]
        plane0 = line00 + y * (line01 - line00)
        plane1 = line10 + y * (line11 - line10)
        out[k] = plane0 + fractions[k] * (plane1 - plane0)


@inlined
def sum_taps(
    source: Any,
    out: Any,
    points: Any,
    sampling: Any,
    outside: Any,
    count: Any,
    index: Any,
    weight: Any,
) -> None:
    """Write voxels of one channel, one at a time, as weighted sums over taps.

    Sums are in float64: there are too few such voxels for vectors to matter.

    Args:
        source: one channel, flat.
        out: (voxels,) float32.
        points: from `locate_piece`.
        sampling: a `Sampling`.
        outside: the value of voxels outside.
        count: of taps along each axis.
        index, weight: from `find_taps`.
    """
    shape, _, padding, is_flat = sampling
    plane = shape[PLANE]
    line = shape[LINE]
    origin = shape[ORIGIN]
    for k in range(out.shape[0]):
        # Most voxels at the ends of pieces lie far outside: they need no sum.
        if padding == CONSTANT and has_no_tap_inside(points, k, shape, count // 2 - 1, is_flat):
            out[k] = np.float32(outside)
            continue
        total = 0.0
        for a in range(1 if is_flat else count):
            x = index[a * PITCH + k]
            x_weight = weight[a * PITCH + k]
            if is_flat:
                # A cubic kernel's first tap along that axis is none that counts.
                x = 0
                x_weight = 1.0
            for b in range(count):
                y = index[(MOST_TAPS + b) * PITCH + k]
                xy_weight = x_weight * weight[(MOST_TAPS + b) * PITCH + k]
                for c in range(count):
                    z = index[(2 * MOST_TAPS + c) * PITCH + k]
                    share = xy_weight * weight[(2 * MOST_TAPS + c) * PITCH + k]
                    # 0 times an infinity would be NaN.
                    if share == 0.0:
                        continue
                    if (x < 0) | (y < 0) | (z < 0):
                        total += share * outside
                    else:
                        voxel = x * plane + y * line + z - origin
                        total += share * np.float64(source[voxel])
        out[k] = np.float32(total)


@inlined
def write_ends(
    source: Any,
    out: Any,
    points: Any,
    sampling: Any,
    outside: Any,
    piece: Any,
    parts: Any,
    index: Any,
    weight: Any,
) -> None:
    """Write the voxels of a piece that have neighbours outside, of all channels.

    Args:
        source: (C, voxels).
        out: (C, X, Y, Z), the patch.
        points: from `locate_piece`.
        sampling: a `Sampling`.
        outside: the value of voxels outside.
        piece: a `Piece`.
        parts: its `Parts`.
        index, weight: memory for `find_taps`.
    """
    i, j, first, length = piece
    if parts.high - parts.low < length:
        for c in range(source.shape[0]):
            out[c, i, j, first : first + parts.low] = np.float32(outside)
            out[c, i, j, first + parts.high : first + length] = np.float32(outside)
    for end in range(2):
        start, stop = end_of_piece(parts, end)
        if start < stop:
            end_points = points[start:]
            num_taps = find_taps(end_points, stop - start, sampling, index, weight)
            for c in range(source.shape[0]):
                line = out[c, i, j, first + start : first + stop]
                sum_taps(source[c], line, end_points, sampling, outside, num_taps, index, weight)


@inlined
def _scale_plane(
    source: Any,
    plane_start: Any,
    line_step: Any,
    lowest: Any,
    fractions: Any,
    pairs: Any,
    lines: Any,
    out: Any,
) -> None:
    """Interpolate one plane of the source along z, then y.

    Args:
        source: one channel, flat.
        plane_start: index of the plane's first voxel.
        line_step: from one line of the source to the next.
        lowest, fractions: from `split_axes`.
        pairs: (Z,) uint64, memory for neighbours along z.
        lines: (2, Z) float32, memory for interpolated lines.
        out: (Y, Z) float32.
    """
    values = pairs.view(np.float32)
    # Every voxel between two lines of the source draws on both: the last two are kept, the even one
    # and the odd one.
    kept_lines = np.full(2, -1, np.int64)
    for j in range(out.shape[0]):
        lower = lowest[1, j]
        for y in range(lower, lower + 2):
            if kept_lines[y & 1] == y:
                continue
            kept_lines[y & 1] = y
            line = lines[y & 1]
            for k in range(out.shape[1]):
                pairs[k] = load_pair(source, np.intp(plane_start + y * line_step + lowest[2, k]))
            for k in range(out.shape[1]):
                line[k] = values[2 * k] + fractions[2, k] * (values[2 * k + 1] - values[2 * k])
        lower_line = lines[lower & 1]
        upper_line = lines[1 - (lower & 1)]
        for k in range(out.shape[1]):
            out[j, k] = lower_line[k] + fractions[1, j] * (upper_line[k] - lower_line[k])


@inlined
def _resample_scaled(
    source: Any, out: Any, shape: Any, is_flat: Any, lowest: Any, fractions: Any
) -> None:
    """Resample all channels of a patch that is scaled, not turned.

    Each plane of the source is interpolated once for all voxels next to it. A voxel's arithmetic is
    that of `_blend`, step by step, so that the bytes are the same.

    Args:
        source, out, shape, is_flat: as in `resample_images`.
        lowest, fractions: from `split_axes`.
    """
    pairs = np.empty(out.shape[3], np.uint64)
    lines = np.empty((2, out.shape[3]), np.float32)
    planes = np.empty((2, out.shape[2], out.shape[3]), np.float32)
    line_step = shape[LINE]
    for c in range(source.shape[0]):
        if is_flat:
            _scale_plane(
                source[c], -shape[ORIGIN], line_step, lowest, fractions, pairs, lines, out[c, 0]
            )
            continue
        # As for lines in `_scale_plane`.
        kept_planes = np.full(2, -1, np.int64)
        for i in range(out.shape[1]):
            lower = lowest[0, i]
            for x in range(lower, lower + 2):
                if kept_planes[x & 1] == x:
                    continue
                kept_planes[x & 1] = x
                plane_start = x * shape[PLANE] - shape[ORIGIN]
                plane = planes[x & 1]
                _scale_plane(
                    source[c], plane_start, line_step, lowest, fractions, pairs, lines, plane
                )
            lower_plane = planes[lower & 1].reshape(-1)
            upper_plane = planes[1 - (lower & 1)].reshape(-1)
            result = out[c, i].reshape(-1)
            for k in range(result.shape[0]):
                result[k] = lower_plane[k] + fractions[0, i] * (upper_plane[k] - lower_plane[k])


@kernel(f"void(float32[:, ::1], float32[:, :, :, ::1], {WHERE}, int64, float64, boolean)")
def resample_images(
    source: Any,
    out: Any,
    shape: Any,
    matrix: Any,
    offset: Any,
    displacement: Any,
    padding: Any,
    outside: Any,
    is_flat: Any,
) -> None:
    """Resample all channels of a patch, linearly.

    Args:
        source: (C, voxels), each channel flat: a window of a volume, or all of it.
        out: (C, X, Y, Z), the patch.
        shape: (6,), where a window lies in its volume (`detaug.kernels.coordinates.layout`).
        matrix, offset, displacement: as in `detaug.kernels.coordinates.Map`.
        padding: `CONSTANT` or `BORDER`.
        outside: the value of voxels outside, with a constant border.
        is_flat: two-dimensional (``shape[0] == 1``).
    """
    points = np.empty(3 * PITCH, np.float64)
    fractions = np.empty(3 * PITCH, np.float32)
    lowest = np.empty(PIECE, np.int32)
    pairs = np.empty(4 * PITCH, np.uint64)
    pair_values = pairs.view(np.float32)
    tap_indices = np.zeros(3 * MOST_TAPS * PITCH, np.int64)
    tap_weights = np.empty(3 * MOST_TAPS * PITCH, np.float64)
    patch_map = Map(matrix, offset, displacement)
    sampling = Sampling(shape, LINEAR, padding, is_flat)
    # Voxels are found by 32-bit indices, which vectors hold twice as many of.
    is_straight = (displacement.size == 0) & (source.shape[1] < 2**31)
    if is_straight:
        longest = max(out.shape[1], out.shape[2], out.shape[3])
        axis_lowest = np.empty((3, longest), np.int64)
        axis_fractions = np.empty((3, longest), np.float32)
        if split_axes(patch_map, out.shape[1:], shape, is_flat, axis_lowest, axis_fractions):
            _resample_scaled(source, out, shape, is_flat, axis_lowest, axis_fractions)
            return
    for number in range(out.shape[1] * out.shape[2]):
        i, j = row_of(number, out.shape[1], out.shape[2])
        for first in range(0, out.shape[3], PIECE):
            length = min(PIECE, out.shape[3] - first)
            piece = Piece(i, j, first, length)
            start = 0
            stop = length
            low = 0
            high = length
            is_split = is_straight and split_straight_piece(
                patch_map, piece, shape, is_flat, lowest, fractions
            )
            if not is_split:
                start, stop, low, high = locate_piece(
                    points, patch_map, piece, sampling, source.shape[1]
                )
                split_points(points[start:], stop - start, shape, is_flat, lowest, fractions)
            if stop > start:
                for c in range(source.shape[0]):
                    gather(source[c], stop - start, shape, is_flat, lowest, pairs)
                    inner = out[c, i, j, first + start : first + stop]
                    _blend(inner, stop - start, is_flat, fractions, pair_values)
            # Tested before the call, which counts references of arrays: most pieces have no ends.
            if stop - start < length:
                parts = Parts(start, stop, low, high)
                write_ends(
                    source, out, points, sampling, outside, piece, parts, tap_indices, tap_weights
                )


@inlined
def _find_nearest(points: Any, length: Any, shape: Any, nearest: Any) -> None:
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
        x = nearest_voxel(points[k])
        y = nearest_voxel(points[PITCH + k])
        z = nearest_voxel(points[2 * PITCH + k])
        is_inside = (x >= 0.0) & (x <= last_x)
        is_inside &= (y >= 0.0) & (y <= last_y)
        is_inside &= (z >= 0.0) & (z <= last_z)
        voxel = x * plane + (y * line + (z - origin))
        nearest[k] = voxel if is_inside else -1.0


@kernel(
    f"void(float32[:, ::1], float32[:, :, :, ::1], {WHERE}, float64)",
    f"void(int16[:, ::1], int16[:, :, :, ::1], {WHERE}, int16)",
    f"void(int32[:, ::1], int32[:, :, :, ::1], {WHERE}, int32)",
)
def resample_nearest(
    source: Any, out: Any, shape: Any, matrix: Any, offset: Any, displacement: Any, outside: Any
) -> None:
    """Resample all channels of a patch to the nearest voxels.

    Arguments are those of `resample_images`.
    """
    points = np.empty(3 * PITCH, np.float64)
    nearest = np.empty(PIECE, np.float64)
    patch_map = Map(matrix, offset, displacement)
    for row in range(out.shape[1] * out.shape[2]):
        i = row // out.shape[2]
        j = row % out.shape[2]
        for first in range(0, out.shape[3], PIECE):
            length = min(PIECE, out.shape[3] - first)
            locate_row(points, patch_map, Piece(i, j, first, length))
            _find_nearest(points, length, shape, nearest)
            for c in range(source.shape[0]):
                voxels = source[c]
                line = out[c, i, j, first : first + length]
                for k in range(length):
                    index = np.int64(nearest[k])
                    if index < 0:
                        line[k] = outside
                    else:
                        line[k] = voxels[np.uint64(index)]
