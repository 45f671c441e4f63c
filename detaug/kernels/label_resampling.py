"""Labels resampled through an affine map: per voxel the label with the largest interpolated weight.

This is the argmax over interpolated one-hot channels, without making them: where all neighbours
have one label, that is the answer; where one label has most of the weight in float32, that is the
answer; elsewhere the few labels among the neighbours are weighed in float64.

    piece of a row -> `gather`: pairs of neighbours -> `_settle_piece`, in float32, with vectors
                                                           | voxels that are left
                                                           `_settle_rest`, in float64, one by one
    ends of the piece, with neighbours outside -> `_settle_taps`
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.coordinates import (
    CONSTANT,
    LINE,
    LINEAR,
    MOST_TAPS,
    NEAREST,
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
from detaug.kernels.resampling import WHERE, gather

# Weights (of a whole of 1) closer than this are equal: far above the rounding of float64.
TIE = 2.0**-30

# In place of a label: it takes float64 to tell. No int16 is as large.
_UNSETTLED = np.int32(1 << 20)
# Weights are sums of eight products of float32 numbers from 0 to 1: this is far above their
# rounding, and above `TIE`.
_MAJORITY = np.float32(0.5 + 2.0**-16)


class Pairs(NamedTuple):
    """The eight neighbours of voxels, two along z in an uint32: the first is the lower half.

    Attributes:
        pairs00, pairs01, pairs10, pairs11: (voxels,) uint32, those at (x, y), (x, y + 1), (x + 1,
            y) and (x + 1, y + 1). In a plane the last two are the first two once more.
    """

    pairs00: Any
    pairs01: Any
    pairs10: Any
    pairs11: Any


class Candidates(NamedTuple):
    """Memory for the labels of a voxel's neighbours, and their weights.

    Attributes:
        labels: (8,), of the patch's dtype.
        weights: (8,) float64.
    """

    labels: Any
    weights: Any


class Taps(NamedTuple):
    """What `find_taps` writes.

    Attributes:
        index: int64, of each of the eight neighbours along the axes.
        weight: float64, likewise.
        nearest_index: int64, of the nearest voxel.
    """

    index: Any
    weight: Any
    nearest_index: Any


@inlined
def _memory_for_taps() -> Any:
    """Return memory for the `Taps` of a piece."""
    index = np.zeros(3 * MOST_TAPS * PITCH, np.int64)
    weight = np.empty(3 * MOST_TAPS * PITCH, np.float64)
    nearest_index = np.zeros(3 * MOST_TAPS * PITCH, np.int64)
    return Taps(index, weight, nearest_index)


@inlined
def _labels_of(pair00: Any, pair01: Any, pair10: Any, pair11: Any) -> Any:
    """Return the eight neighbours in four pairs, in the order of x, y, z."""
    return (
        _lower_half(pair00),
        _upper_half(pair00),
        _lower_half(pair01),
        _upper_half(pair01),
        _lower_half(pair10),
        _upper_half(pair10),
        _lower_half(pair11),
        _upper_half(pair11),
    )


@inlined
def _upper_half(pair: Any) -> Any:
    """Return the second of two labels, as a signed number: negative labels stay negative."""
    return np.int32(np.int32(pair) >> np.int32(16))


@inlined
def _lower_half(pair: Any) -> Any:
    """Return the first of two labels as a signed number, by way of the upper half."""
    return _upper_half(np.uint32(pair << np.uint32(16)))


@inlined
def _first_other(labels: Any, label: Any) -> Any:
    """Return the first of eight labels that is another one; the first of all if there is none.

    Written out, from the last to the first, as a choice between two values each: for vectors.
    """
    first = labels[0]
    first = labels[7] if labels[7] != label else first
    first = labels[6] if labels[6] != label else first
    first = labels[5] if labels[5] != label else first
    first = labels[4] if labels[4] != label else first
    first = labels[3] if labels[3] != label else first
    first = labels[2] if labels[2] != label else first
    return labels[1] if labels[1] != label else first


@inlined
def _weight_in_plane(label: Any, l0: Any, l1: Any, l2: Any, l3: Any, weights: Any) -> Any:
    """Return a label's weight among four neighbours, whose labels are l0 to l3."""
    w0, w1, w2, w3 = weights
    zero = np.float32(0)
    share0 = w0 if l0 == label else zero
    share1 = w1 if l1 == label else zero
    share2 = w2 if l2 == label else zero
    share3 = w3 if l3 == label else zero
    return (share0 + share1) + (share2 + share3)


@inlined
def _weight_of(label: Any, labels: Any, x0: Any, x1: Any, weights: Any) -> Any:
    """Return a label's weight among eight neighbours.

    Args:
        label: the label.
        labels: those of the neighbours, from `_labels_of`.
        x0, x1: the weights of the lower and of the upper plane.
        weights: the four of the neighbours within their plane.
    """
    l0, l1, l2, l3, l4, l5, l6, l7 = labels
    lower = _weight_in_plane(label, l0, l1, l2, l3, weights)
    upper = _weight_in_plane(label, l4, l5, l6, l7, weights)
    return x0 * lower + x1 * upper


@inlined
def _settle_majorities(pairs: Any, fractions: Any, count: Any, settled: Any) -> None:
    """Set, in float32, the labels of the voxels of a piece where one label has most of the weight.

    "Most" is more than half. Only two labels are tried: that of the first neighbour, and the first
    one that differs from it.

    Args:
        pairs: `Pairs`.
        fractions: float32, how far voxels lie from their lowest neighbour, in a part for each axis.
        count: of voxels.
        settled: (count,) int32, the labels; `_UNSETTLED` where neither has more than half.
    """
    pairs00, pairs01, pairs10, pairs11 = pairs
    one = np.float32(1)
    for n in range(count):
        x1 = fractions[n]
        y1 = fractions[PITCH + n]
        z1 = fractions[2 * PITCH + n]
        x0 = one - x1
        y0 = one - y1
        z0 = one - z1
        weights = (y0 * z0, y0 * z1, y1 * z0, y1 * z1)
        labels = _labels_of(pairs00[n], pairs01[n], pairs10[n], pairs11[n])
        first = labels[0]
        other = _first_other(labels, first)
        first_weight = _weight_of(first, labels, x0, x1, weights)
        other_weight = _weight_of(other, labels, x0, x1, weights)
        # A third label may have the majority, too: such voxels are left to float64.
        label = other if other_weight > _MAJORITY else _UNSETTLED
        settled[n] = first if first_weight > _MAJORITY else label


@inlined
def _settle_piece(pairs: Any, fractions: Any, out: Any, settled: Any) -> Any:
    """Write the labels of a piece's voxels, and return the number of those that need float64.

    Those are `_UNSETTLED` in ``settled``.

    Args:
        pairs, fractions, settled: as in `_settle_majorities`.
        out: (voxels,) int16.
    """
    pairs00, pairs01, pairs10, pairs11 = pairs
    count = out.shape[0]
    # Bits in which a neighbour differs from another one, gathered without a branch, for vectors.
    differing = np.uint32(0)
    for n in range(count):
        pair = pairs00[n]
        within = np.uint32((pair ^ (pair >> np.uint32(16))) & np.uint32(0xFFFF))
        others = (pair ^ pairs01[n]) | (pair ^ pairs10[n]) | (pair ^ pairs11[n])
        differing |= np.uint32(others | within)
    if differing == 0:
        for n in range(count):
            out[n] = np.int16(pairs00[n])
        return 0
    _settle_majorities(pairs, fractions, count, settled)
    num_unsettled = np.int32(0)
    for n in range(count):
        num_unsettled += np.int32(settled[n] == _UNSETTLED)
        out[n] = np.int16(settled[n])
    return num_unsettled


@inlined
def _settle_rest(
    pairs: Any, points: Any, shape: Any, is_flat: Any, out: Any, settled: Any, candidates: Any
) -> None:
    """Settle the voxels that `_settle_piece` left.

    Args:
        pairs, out, settled: as in `_settle_piece`.
        points: float64, the voxels' coordinates in the source.
        shape: from `layout`.
        is_flat: the source is a plane.
        candidates: `Candidates`, memory.
    """
    pairs00, pairs01, pairs10, pairs11 = pairs
    labels, weights = candidates
    for n in range(out.shape[0]):
        if settled[n] == _UNSETTLED:
            around = (pairs00[n], pairs01[n], pairs10[n], pairs11[n])
            x = 0.0 if is_flat else points[n]
            y = points[PITCH + n]
            z = points[2 * PITCH + n]
            out[n] = np.int16(_weigh(around, x, y, z, shape, labels, weights))


@inlined
def _settle_scaled(
    source: Any,
    out: Any,
    patch_map: Any,
    shape: Any,
    lowest: Any,
    axis_fractions: Any,
    points: Any,
    fractions: Any,
    settled: Any,
    candidates: Any,
) -> None:
    """Resample a channel of a volume's patch that is scaled, not turned.

    Pairs along z are read once for all voxels between two planes.

    Args:
        source: one channel, flat.
        out: (X, Y, Z) int16, Z at most `PIECE`.
        patch_map: a straight `Map`.
        shape: from `layout`.
        lowest, axis_fractions: from `split_axes`.
        points, fractions, settled, candidates: memory for a piece.
    """
    (num_planes, num_lines, length) = out.shape
    # A mirrored axis begins with its last line.
    first_line = min(lowest[1, 0], lowest[1, num_lines - 1])
    last_line = max(lowest[1, 0], lowest[1, num_lines - 1]) + 1
    pairs = np.empty((2, last_line + 1 - first_line, length), np.uint32)
    fractions[2 * PITCH : 2 * PITCH + length] = axis_fractions[2, :length]
    # Every voxel between two planes of the source draws on both: the last two are kept, the even
    # one and the odd one.
    kept_planes = np.full(2, -1, np.int64)
    for i in range(num_planes):
        lower = lowest[0, i]
        for x in range(lower, lower + 2):
            if kept_planes[x & 1] == x:
                continue
            kept_planes[x & 1] = x
            for y in range(pairs.shape[1]):
                start = x * shape[PLANE] + (first_line + y) * shape[LINE] - shape[ORIGIN]
                for k in range(length):
                    pairs[x & 1, y, k] = load_pair(source, np.intp(start + lowest[2, k]))
        lower_plane = pairs[lower & 1]
        upper_plane = pairs[1 - (lower & 1)]
        fractions[:length] = axis_fractions[0, i]
        for j in range(num_lines):
            y = lowest[1, j] - first_line
            fractions[PITCH : PITCH + length] = axis_fractions[1, j]
            around = Pairs(lower_plane[y], lower_plane[y + 1], upper_plane[y], upper_plane[y + 1])
            if _settle_piece(around, fractions, out[i, j], settled) > 0:
                locate_row(points, patch_map, Piece(i, j, 0, length))
                _settle_rest(around, points, shape, False, out[i, j], settled, candidates)


@inlined
def _weigh(around: Any, x: Any, y: Any, z: Any, shape: Any, labels: Any, weights: Any) -> Any:
    """Return the label of the largest summed weight of a voxel's eight neighbours, in float64.

    Args:
        around: its four pairs.
        x, y, z: its coordinates in the source.
        shape: from `layout`.
        labels, weights: of `Candidates`.
    """
    # A point on the last voxel belongs to the cell before it; a plane has none along x.
    floor_x = min(np.int64(x), max(shape[0] - 2, 0))
    floor_y = min(np.int64(y), shape[1] - 2)
    floor_z = min(np.int64(z), shape[2] - 2)
    x1 = x - np.float64(floor_x)
    y1 = y - np.float64(floor_y)
    z1 = z - np.float64(floor_z)
    nearest_corner = (
        4 * (np.int64(nearest_voxel(x)) - floor_x)
        + 2 * (np.int64(nearest_voxel(y)) - floor_y)
        + np.int64(nearest_voxel(z))
        - floor_z
    )
    nearest = np.int16(0)
    # Each label once, with the sum of its weights in the neighbours' order. Written out here and in
    # `_settle_taps`: with a loop in it, a call for each neighbour would count the arrays'
    # references, which takes longer than the rest.
    num_labels = np.intp(0)
    for corner in range(8):
        pair = around[corner >> 1]
        label = np.int16(pair >> np.uint32(16)) if corner & 1 else np.int16(pair)
        if corner == nearest_corner:
            nearest = label
        x_weight = x1 if corner >> 2 else 1.0 - x1
        y_weight = y1 if (corner >> 1) & 1 else 1.0 - y1
        z_weight = z1 if corner & 1 else 1.0 - z1
        m = 0
        while m < num_labels and labels[m] != label:
            m += 1
        if m == num_labels:
            labels[m] = label
            weights[m] = 0.0
            num_labels += 1
        weights[m] += x_weight * y_weight * z_weight
    return _heaviest(labels, weights, num_labels, nearest)


@inlined
def _heaviest(labels: Any, weights: Any, num_labels: Any, nearest: Any) -> Any:
    """Return the label with the largest weight.

    Of several it is the nearest voxel's where that is one of them, else the lowest.

    Args:
        labels, weights: of `Candidates`, each label once.
        num_labels: at least 1.
        nearest: the nearest voxel's label.
    """
    largest = weights[0]
    for m in range(1, num_labels):
        largest = max(largest, weights[m])
    # The largest number that int32 holds: no label is above it.
    winner = np.int32(2**31 - 1)
    for m in range(num_labels):
        if weights[m] >= largest - TIE:
            candidate = np.int32(labels[m])
            if candidate == nearest:
                return candidate
            winner = min(winner, candidate)
    return winner


@inlined
def _tap_index(x: Any, y: Any, z: Any, plane: Any, line: Any, origin: Any) -> Any:
    """Return a tap's index in the source's memory; -1 outside.

    It gets numbers, not arrays, since it is called for each tap: a call with a branch in it counts
    the references of its arrays, which takes longer than the rest.

    Args:
        x, y, z: indices along the axes, from `find_taps`.
        plane, line, origin: from `layout`.
    """
    if (x < 0) | (y < 0) | (z < 0):
        return np.int64(-1)
    return np.int64(x * plane + y * line + z - origin)


@inlined
def _find_label_taps(points: Any, length: Any, sampling: Any, taps: Any) -> None:
    """Find a piece's taps, and the voxels that are nearest to its points.

    Args:
        points, length: as in `find_taps`.
        sampling: a linear `Sampling`.
        taps: `Taps`, memory.
    """
    nearest_sampling = Sampling(sampling.shape, NEAREST, CONSTANT, sampling.is_flat)
    # First the nearest: its weights, which are all 1, are overwritten.
    find_taps(points, length, nearest_sampling, taps.nearest_index, taps.weight)
    find_taps(points, length, sampling, taps.index, taps.weight)


@inlined
def _settle_taps(
    source: Any,
    out: Any,
    points: Any,
    shape: Any,
    is_flat: Any,
    outside: Any,
    taps: Any,
    candidates: Any,
) -> None:
    """Settle voxels of one channel, one at a time, that may have neighbours outside.

    Args:
        source: one channel, flat.
        out: (voxels,), of the source's dtype.
        points: float64, the voxels' coordinates in the source.
        shape: from `layout`.
        is_flat: the source is a plane.
        outside: the label of voxels outside.
        taps: `Taps`, found before.
        candidates: `Candidates`, memory.
    """
    index, weight, nearest_index = taps
    labels, weights = candidates
    plane = shape[PLANE]
    line = shape[LINE]
    origin = shape[ORIGIN]
    for k in range(out.shape[0]):
        # Most voxels at the ends of pieces lie far outside: they need no sum.
        if has_no_tap_inside(points, k, shape, 0, is_flat):
            out[k] = outside
            continue
        x = 0 if is_flat else nearest_index[k]
        y = nearest_index[MOST_TAPS * PITCH + k]
        z = nearest_index[2 * MOST_TAPS * PITCH + k]
        voxel = _tap_index(x, y, z, plane, line, origin)
        nearest = outside if voxel < 0 else source[voxel]
        num_labels = np.intp(0)
        for a in range(1 if is_flat else 2):
            x = 0 if is_flat else index[a * PITCH + k]
            x_weight = 1.0 if is_flat else weight[a * PITCH + k]
            for b in range(2):
                y = index[(MOST_TAPS + b) * PITCH + k]
                xy_weight = x_weight * weight[(MOST_TAPS + b) * PITCH + k]
                for c in range(2):
                    z = index[(2 * MOST_TAPS + c) * PITCH + k]
                    share = xy_weight * weight[(2 * MOST_TAPS + c) * PITCH + k]
                    # A label without a weight must not win a tie.
                    if share == 0.0:
                        continue
                    voxel = _tap_index(x, y, z, plane, line, origin)
                    label = outside if voxel < 0 else source[voxel]
                    m = 0
                    while m < num_labels and labels[m] != label:
                        m += 1
                    if m == num_labels:
                        labels[m] = label
                        weights[m] = 0.0
                        num_labels += 1
                    weights[m] += share
        out[k] = _heaviest(labels, weights, num_labels, nearest)


@kernel(f"void(int16[:, ::1], int16[:, :, :, ::1], {WHERE}, int16, boolean)")
def resample_labels(
    source: Any,
    out: Any,
    shape: Any,
    matrix: Any,
    offset: Any,
    displacement: Any,
    outside: Any,
    is_flat: Any,
) -> None:
    """Resample all channels of a patch of labels.

    Arguments are those of `detaug.kernels.resampling.resample_images`; ``outside`` is the label of
    voxels outside.
    """
    points = np.empty(3 * PITCH, np.float64)
    fractions = np.zeros(3 * PITCH, np.float32)
    lowest = np.empty(PIECE, np.int32)
    pairs = np.zeros(4 * PITCH, np.uint32)
    # In a plane the upper neighbours are the lower ones once more.
    upper = pairs if is_flat else pairs[2 * PITCH :]
    around = Pairs(pairs, pairs[PITCH:], upper, upper[PITCH:])
    settled = np.empty(PIECE, np.int32)
    candidates = Candidates(np.empty(8, np.int16), np.empty(8, np.float64))
    taps = _memory_for_taps()
    patch_map = Map(matrix, offset, displacement)
    sampling = Sampling(shape, LINEAR, CONSTANT, is_flat)
    # Voxels are found by 32-bit indices, which vectors hold twice as many of.
    is_straight = (displacement.size == 0) & (source.shape[1] < 2**31)
    longest = max(out.shape[1], out.shape[2], out.shape[3])
    axis_lowest = np.empty((3, longest), np.int64)
    axis_fractions = np.empty((3, longest), np.float32)
    # Pairs are kept for the next plane of the patch, and a flat patch has only one.
    is_scaled = is_straight & (not is_flat) & (out.shape[3] <= PIECE)
    if is_scaled:
        extents = out.shape[1:]
        is_scaled = split_axes(patch_map, extents, shape, is_flat, axis_lowest, axis_fractions)
    for c in range(source.shape[0]):
        channel = source[c]
        if is_scaled:
            _settle_scaled(
                channel,
                out[c],
                patch_map,
                shape,
                axis_lowest,
                axis_fractions,
                points,
                fractions,
                settled,
                candidates,
            )
            continue
        for number in range(out.shape[1] * out.shape[2]):
            i, j = row_of(number, out.shape[1], out.shape[2])
            for first in range(0, out.shape[3], PIECE):
                length = min(PIECE, out.shape[3] - first)
                piece = Piece(i, j, first, length)
                line = out[c, i, j, first : first + length]
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
                    inner = line[start:stop]
                    gather(channel, stop - start, shape, is_flat, lowest, pairs)
                    if _settle_piece(around, fractions, inner, settled) > 0:
                        if is_split:
                            # The quick way has not written them.
                            locate_row(points, patch_map, piece)
                        inner_points = points[start:]
                        _settle_rest(
                            around, inner_points, shape, is_flat, inner, settled, candidates
                        )
                line[:low] = outside
                line[high:] = outside
                parts = Parts(start, stop, low, high)
                for end in range(2):
                    end_start, end_stop = end_of_piece(parts, end)
                    if end_start < end_stop:
                        end_line = line[end_start:end_stop]
                        end_points = points[end_start:]
                        _find_label_taps(end_points, end_stop - end_start, sampling, taps)
                        _settle_taps(
                            channel, end_line, end_points, shape, is_flat, outside, taps, candidates
                        )


@kernel(f"void(int32[:, ::1], int32[:, :, :, ::1], {WHERE}, int32, boolean)")
def resample_wide_labels(
    source: Any,
    out: Any,
    shape: Any,
    matrix: Any,
    offset: Any,
    displacement: Any,
    outside: Any,
    is_flat: Any,
) -> None:
    """Resample a patch of labels that int16 does not hold, all channels.

    Every voxel's neighbours are weighed one by one: such labels (those of brain atlases, or of many
    instances) are rare, and this kernel is short.

    Arguments are those of `resample_labels`.
    """
    points = np.empty(3 * PITCH, np.float64)
    candidates = Candidates(np.empty(8, np.int32), np.empty(8, np.float64))
    taps = _memory_for_taps()
    patch_map = Map(matrix, offset, displacement)
    sampling = Sampling(shape, LINEAR, CONSTANT, is_flat)
    for number in range(out.shape[1] * out.shape[2]):
        i, j = row_of(number, out.shape[1], out.shape[2])
        for first in range(0, out.shape[3], PIECE):
            length = min(PIECE, out.shape[3] - first)
            locate_row(points, patch_map, Piece(i, j, first, length))
            _find_label_taps(points, length, sampling, taps)
            for c in range(source.shape[0]):
                line = out[c, i, j, first : first + length]
                _settle_taps(source[c], line, points, shape, is_flat, outside, taps, candidates)
