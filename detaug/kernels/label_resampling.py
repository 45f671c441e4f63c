"""Labels resampled through an affine map: per voxel the label with the largest interpolated weight.

This is the argmax over interpolated one-hot channels, without making them: where all neighbours
have one label, that is the answer; elsewhere the few labels among the neighbours are weighed in
float64.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.coordinates import (
    CONSTANT,
    LINE,
    LINEAR,
    NEAREST,
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
from detaug.kernels.resampling import WHERE, gather

# Weights (of a whole of 1) closer than this are equal: far above the rounding of float64.
TIE = 2.0**-30

# In place of a label: it takes float64 to tell.
_UNSETTLED = np.int32(1 << 20)
# Weights are sums of eight products of float32 numbers from 0 to 1: this is far above their
# rounding, and above `TIE`.
_MAJORITY = np.float32(0.5 + 2.0**-16)


@inlined
def _labels_of(pair0: Any, pair1: Any, pair2: Any, pair3: Any) -> Any:
    """Return the eight neighbours in four pairs."""
    shift = np.int32(16)
    return (
        np.int32(np.int32(np.uint32(pair0 << np.uint32(16))) >> shift),
        np.int32(np.int32(pair0) >> shift),
        np.int32(np.int32(np.uint32(pair1 << np.uint32(16))) >> shift),
        np.int32(np.int32(pair1) >> shift),
        np.int32(np.int32(np.uint32(pair2 << np.uint32(16))) >> shift),
        np.int32(np.int32(pair2) >> shift),
        np.int32(np.int32(np.uint32(pair3 << np.uint32(16))) >> shift),
        np.int32(np.int32(pair3) >> shift),
    )


@inlined
def _first_other(labels: Any, one: Any, other: Any) -> Any:
    """Return the first of eight labels that is neither of two; the first of all if there is none.

    Written out, for vectors.
    """
    first = labels[0]
    first = labels[7] if (labels[7] != one) & (labels[7] != other) else first
    first = labels[6] if (labels[6] != one) & (labels[6] != other) else first
    first = labels[5] if (labels[5] != one) & (labels[5] != other) else first
    first = labels[4] if (labels[4] != one) & (labels[4] != other) else first
    first = labels[3] if (labels[3] != one) & (labels[3] != other) else first
    first = labels[2] if (labels[2] != one) & (labels[2] != other) else first
    return labels[1] if (labels[1] != one) & (labels[1] != other) else first


@inlined
def _weight_of(
    label: Any, l0: Any, l1: Any, l2: Any, l3: Any, w0: Any, w1: Any, w2: Any, w3: Any
) -> Any:
    """Return a label's weight among the four neighbours in a plane."""
    zero = np.float32(0)
    first = (w0 if l0 == label else zero) + (w1 if l1 == label else zero)
    return first + ((w2 if l2 == label else zero) + (w3 if l3 == label else zero))


@inlined
def _settle_majorities(
    pairs0: Any, pairs1: Any, pairs2: Any, pairs3: Any, parts: Any, count: Any, chosen: Any
) -> None:
    """Set, in float32, the labels of the voxels of a piece where one label has most of the weight.

    "Most" is more than half. Only two labels are tried: that of the first neighbour, and the first
    one that differs from it.
    """
    one = np.float32(1)
    for n in range(count):
        x1 = parts[n]
        y1 = parts[PITCH + n]
        z1 = parts[2 * PITCH + n]
        x0 = one - x1
        y0 = one - y1
        z0 = one - z1
        w0 = y0 * z0
        w1 = y0 * z1
        w2 = y1 * z0
        w3 = y1 * z1
        labels = _labels_of(pairs0[n], pairs1[n], pairs2[n], pairs3[n])
        l0, l1, l2, l3, l4, l5, l6, l7 = labels
        b = _first_other(labels, l0, l0)
        of_a = x0 * _weight_of(l0, l0, l1, l2, l3, w0, w1, w2, w3) + x1 * _weight_of(
            l0, l4, l5, l6, l7, w0, w1, w2, w3
        )
        of_b = x0 * _weight_of(b, l0, l1, l2, l3, w0, w1, w2, w3) + x1 * _weight_of(
            b, l4, l5, l6, l7, w0, w1, w2, w3
        )
        label = b if of_b > _MAJORITY else _UNSETTLED
        chosen[n] = l0 if of_a > _MAJORITY else label


@inlined
def _settle_piece(
    pairs0: Any, pairs1: Any, pairs2: Any, pairs3: Any, parts: Any, out: Any, chosen: Any
) -> Any:
    """Write the labels of a piece's voxels, and return the number of those that need float64.

    Those are `_UNSETTLED` in ``chosen``.
    """
    count = out.shape[0]
    different = np.uint32(0)
    for n in range(count):
        a = pairs0[n]
        within = np.uint32((a ^ (a >> np.uint32(16))) & np.uint32(0xFFFF))
        different |= np.uint32((a ^ pairs1[n]) | (a ^ pairs2[n]) | (a ^ pairs3[n]) | within)
    if different == 0:
        for n in range(count):
            out[n] = np.int16(pairs0[n])
        return 0
    _settle_majorities(pairs0, pairs1, pairs2, pairs3, parts, count, chosen)
    unsettled = np.int32(0)
    for n in range(count):
        unsettled += np.int32(chosen[n] == _UNSETTLED)
        out[n] = np.int16(chosen[n])
    return unsettled


@inlined
def _settle_rest(
    pairs0: Any,
    pairs1: Any,
    pairs2: Any,
    pairs3: Any,
    rows: Any,
    sampling: Any,
    out: Any,
    chosen: Any,
    labels: Any,
    scores: Any,
) -> None:
    """Settle the voxels that `_settle_piece` left.

    ``rows`` has their coordinates in the source.
    """
    shape, _, _, flat = sampling
    for n in range(out.shape[0]):
        if chosen[n] == _UNSETTLED:
            around = (pairs0[n], pairs1[n], pairs2[n], pairs3[n])
            x = 0.0 if flat else rows[n]
            y = rows[PITCH + n]
            z = rows[2 * PITCH + n]
            out[n] = np.int16(_weighed(around, x, y, z, shape, labels, scores))


@inlined
def _settle_scaled(
    source: Any,
    out: Any,
    patch_map: Any,
    sampling: Any,
    low: Any,
    part: Any,
    rows: Any,
    parts: Any,
    chosen: Any,
    labels: Any,
    scores: Any,
) -> None:
    """Resample a channel of a patch that is scaled, not turned.

    Pairs along z are read once for all voxels between two planes.
    """
    shape = sampling.shape
    (planes, lines, length) = out.shape
    first = min(low[1, 0], low[1, lines - 1])
    pairs = np.empty((2, max(low[1, 0], low[1, lines - 1]) + 2 - first, length), np.uint32)
    parts[2 * PITCH : 2 * PITCH + length] = part[2, :length]
    even: Any = np.int64(-1)
    odd: Any = np.int64(-1)
    for i in range(planes):
        for x in range(low[0, i], low[0, i] + 2):
            if x != (odd if x & 1 else even):
                even, odd = (even, x) if x & 1 else (x, odd)
                for y in range(pairs.shape[1]):
                    start = x * shape[PLANE] + (first + y) * shape[LINE] - shape[ORIGIN]
                    for k in range(length):
                        pairs[x & 1, y, k] = load_pair(source, np.intp(start + low[2, k]))
        one = pairs[low[0, i] & 1]
        other = pairs[1 - (low[0, i] & 1)]
        parts[:length] = part[0, i]
        for j in range(lines):
            y = low[1, j] - first
            parts[PITCH : PITCH + length] = part[1, j]
            if (
                _settle_piece(one[y], one[y + 1], other[y], other[y + 1], parts, out[i, j], chosen)
                > 0
            ):
                place_row(rows, patch_map, i, j, 0, length)
                _settle_rest(
                    one[y],
                    one[y + 1],
                    other[y],
                    other[y + 1],
                    rows,
                    sampling,
                    out[i, j],
                    chosen,
                    labels,
                    scores,
                )


@inlined
def _weighed(around: Any, x: Any, y: Any, z: Any, shape: Any, labels: Any, scores: Any) -> Any:
    """Return the label of the largest summed weight of a voxel's eight neighbours, in float64."""
    ix = min(np.int64(x), max(shape[0] - 2, 0))
    iy = min(np.int64(y), shape[1] - 2)
    iz = min(np.int64(z), shape[2] - 2)
    fx = x - np.float64(ix)
    fy = y - np.float64(iy)
    fz = z - np.float64(iz)
    near = (
        4 * (np.int64(nearest_voxel(x)) - ix)
        + 2 * (np.int64(nearest_voxel(y)) - iy)
        + np.int64(nearest_voxel(z))
        - iz
    )
    nearest = np.int16(0)
    known = np.intp(0)
    for corner in range(8):
        a = corner >> 2
        b = (corner >> 1) & 1
        c = corner & 1
        pair = around[corner >> 1]
        label = np.int16(pair >> np.uint32(16)) if c else np.int16(pair)
        if corner == near:
            nearest = label
        m = 0
        while m < known and labels[m] != label:
            m += 1
        if m == known:
            labels[m] = label
            scores[m] = 0.0
            known += 1
        scores[m] += (fx if a else 1.0 - fx) * (fy if b else 1.0 - fy) * (fz if c else 1.0 - fz)
    return _winner(known, labels, scores, nearest)


@inlined
def _winner(known: Any, labels: Any, scores: Any, nearest: Any) -> Any:
    """Return the label with the largest score.

    Of several it is the nearest voxel's where that is one of them, else the lowest.
    """
    best = scores[0]
    for n in range(1, known):
        best = max(best, scores[n])
    winner = np.int32(2**31 - 1)
    for n in range(known):
        if scores[n] >= best - TIE:
            label = np.int32(labels[n])
            if label == nearest:
                return label
            winner = min(winner, label)
    return winner


@inlined
def _settle_taps(
    source: Any,
    out: Any,
    rows: Any,
    length: Any,
    sampling: Any,
    pad: Any,
    index: Any,
    weight: Any,
    near: Any,
    labels: Any,
    scores: Any,
) -> None:
    """Settle the voxels of a piece of one channel, one at a time."""
    shape, _, _, flat = sampling
    for k in range(length):
        if touches_nothing(rows, k, shape, 0, flat):
            out[k] = pad
            continue
        x = 0 if flat else near[k]
        y = near[4 * PITCH + k]
        z = near[8 * PITCH + k]
        nearest = (
            pad
            if (x < 0) | (y < 0) | (z < 0)
            else source[x * shape[PLANE] + y * shape[LINE] + z - shape[ORIGIN]]
        )
        known = np.intp(0)
        for a in range(1 if flat else 2):
            x = 0 if flat else index[a * PITCH + k]
            wx = 1.0 if flat else weight[a * PITCH + k]
            for b in range(2):
                y = index[(4 + b) * PITCH + k]
                wy = wx * weight[(4 + b) * PITCH + k]
                for c in range(2):
                    z = index[(8 + c) * PITCH + k]
                    share = wy * weight[(8 + c) * PITCH + k]
                    if share == 0.0:
                        continue
                    label = pad
                    if not ((x < 0) | (y < 0) | (z < 0)):
                        label = source[x * shape[PLANE] + y * shape[LINE] + z - shape[ORIGIN]]
                    n = 0
                    while n < known and labels[n] != label:
                        n += 1
                    if n == known:
                        labels[n] = label
                        scores[n] = 0.0
                        known += 1
                    scores[n] += share
        out[k] = _winner(known, labels, scores, nearest)


@kernel(f"void(int16[:, ::1], int16[:, :, :, ::1], {WHERE}, int16, boolean)")
def resample_labels(
    source: Any,
    out: Any,
    shape: Any,
    matrix: Any,
    offset: Any,
    displacement: Any,
    pad: Any,
    flat: Any,
) -> None:
    """Resample all channels of a patch of labels.

    Args: as `detaug.kernels.resampling.resample_images`, and
        pad: the label outside.
    """
    rows = np.empty(3 * PITCH, np.float64)
    index = np.empty(PIECE, np.int32)
    parts = np.zeros(3 * PITCH, np.float32)
    pairs = np.zeros(4 * PITCH, np.uint32)
    # In a plane the upper neighbours are the lower ones once more.
    upper = pairs if flat else pairs[2 * PITCH :]
    chosen = np.empty(PIECE, np.int32)
    labels = np.empty(8, np.int16)
    scores = np.empty(8, np.float64)
    tap_index = np.zeros(12 * PITCH, np.int64)
    near_index = np.zeros(12 * PITCH, np.int64)
    tap_weight = np.empty(12 * PITCH, np.float64)
    patch_map = Map(matrix, offset, displacement)
    sampling = Sampling(shape, LINEAR, CONSTANT, flat)
    straight = (displacement.size == 0) & (source.shape[1] < 2**31)
    nearest = Sampling(shape, NEAREST, CONSTANT, flat)
    most = max(out.shape[1], out.shape[2], out.shape[3])
    lower = np.empty((3, most), np.int64)
    rest = np.empty((3, most), np.float32)
    scaled = straight & (not flat) & (out.shape[3] <= PIECE)
    if scaled:
        scaled = place_axes(patch_map, out.shape[1:], shape, flat, lower, rest)
    for c in range(source.shape[0]):
        channel = source[c]
        if scaled:
            _settle_scaled(
                channel,
                out[c],
                patch_map,
                sampling,
                lower,
                rest,
                rows,
                parts,
                chosen,
                labels,
                scores,
            )
            continue
        for number in range(out.shape[1] * out.shape[2]):
            i, j = row_of(number, out.shape[1], out.shape[2])
            for begin in range(0, out.shape[3], PIECE):
                size = min(PIECE, out.shape[3] - begin)
                line = out[c, i, j, begin : begin + size]
                start = 0
                stop = size
                low = 0
                high = size
                is_split = straight and split_straight(
                    patch_map, i, j, begin, size, shape, flat, index, parts
                )
                if not is_split:
                    start, stop, low, high = place_piece(
                        rows, patch_map, i, j, begin, size, sampling, source.shape[1]
                    )
                    split_piece(rows[start:], stop - start, shape, flat, index, parts)
                if stop > start:
                    gather(channel, stop - start, shape, flat, index, pairs)
                    inner = line[start:stop]
                    if (
                        _settle_piece(
                            pairs, pairs[PITCH:], upper, upper[PITCH:], parts, inner, chosen
                        )
                        > 0
                    ):
                        if is_split:
                            place_row(rows, patch_map, i, j, begin, size)
                        _settle_rest(
                            pairs,
                            pairs[PITCH:],
                            upper,
                            upper[PITCH:],
                            rows[start:],
                            sampling,
                            inner,
                            chosen,
                            labels,
                            scores,
                        )
                line[:low] = pad
                line[high:] = pad
                for side in range(2):
                    one, other = (low, start) if side == 0 else (stop, high)
                    if one < other:
                        part = rows[one:]
                        tap_piece(part, other - one, nearest, near_index, tap_weight)
                        tap_piece(part, other - one, sampling, tap_index, tap_weight)
                        _settle_taps(
                            channel,
                            line[one:other],
                            part,
                            other - one,
                            sampling,
                            pad,
                            tap_index,
                            tap_weight,
                            near_index,
                            labels,
                            scores,
                        )


@kernel(f"void(int32[:, ::1], int32[:, :, :, ::1], {WHERE}, int32, boolean)")
def resample_wide_labels(
    source: Any,
    out: Any,
    shape: Any,
    matrix: Any,
    offset: Any,
    displacement: Any,
    pad: Any,
    flat: Any,
) -> None:
    """Resample a patch of labels that int16 does not hold, all channels.

    Every voxel's neighbours are weighed one by one: such labels are rare, and this kernel is short.

    Args: as `resample_labels`.
    """
    rows = np.empty(3 * PITCH, np.float64)
    labels = np.empty(8, np.int32)
    scores = np.empty(8, np.float64)
    tap_index = np.zeros(12 * PITCH, np.int64)
    near_index = np.zeros(12 * PITCH, np.int64)
    tap_weight = np.empty(12 * PITCH, np.float64)
    patch_map = Map(matrix, offset, displacement)
    sampling = Sampling(shape, LINEAR, CONSTANT, flat)
    nearest = Sampling(shape, NEAREST, CONSTANT, flat)
    for number in range(out.shape[1] * out.shape[2]):
        i, j = row_of(number, out.shape[1], out.shape[2])
        for start in range(0, out.shape[3], PIECE):
            size = min(PIECE, out.shape[3] - start)
            place_row(rows, patch_map, i, j, start, size)
            tap_piece(rows, size, nearest, near_index, tap_weight)
            tap_piece(rows, size, sampling, tap_index, tap_weight)
            for c in range(source.shape[0]):
                line = out[c, i, j, start : start + size]
                _settle_taps(
                    source[c],
                    line,
                    rows,
                    size,
                    sampling,
                    pad,
                    tap_index,
                    tap_weight,
                    near_index,
                    labels,
                    scores,
                )
