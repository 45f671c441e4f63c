"""Labels resampled through an affine map: per voxel the label with the largest interpolated weight.

This is the argmax over interpolated one-hot channels, without making them: where all neighbours have one label, that is
the answer; elsewhere the few labels among the neighbours are weighed in float64.
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
    PLANE,
    Map,
    Sampling,
    nearest_voxel,
    place_piece,
    tap_piece,
    touches_nothing,
)
from detaug.kernels.pointers import load_label_pair

# How equal weights are settled.
TIE_NEAREST, TIE_LOWEST, TIE_HIGHEST = 0, 1, 2

# Weights (of a whole of 1) closer than this are equal: far above the rounding of float64.
TIE = 2.0**-30

# Voxels whose neighbours differ are weighed in bundles of at most this many: a length whose rows do not all fall into the
# same lines of a CPU's cache.
_BUNDLE = 2 * PIECE + 24


@inlined
def _lowest_neighbours(rows: Any, count: Any, shape: Any, flat: Any, index: Any) -> None:
    plane = np.int32(shape[PLANE])
    line = np.int32(shape[LINE])
    origin = np.int32(shape[ORIGIN])
    last_x = np.int32(shape[0] - 2)
    last_y = np.int32(shape[1] - 2)
    last_z = np.int32(shape[2] - 2)
    if flat:
        for k in range(count):
            iy = min(np.int32(rows[PIECE + k]), last_y)
            iz = min(np.int32(rows[2 * PIECE + k]), last_z)
            index[k] = np.int32(np.int32(iy * line) + np.int32(iz - origin))
        return
    for k in range(count):
        ix = min(np.int32(rows[k]), last_x)
        iy = min(np.int32(rows[PIECE + k]), last_y)
        iz = min(np.int32(rows[2 * PIECE + k]), last_z)
        index[k] = np.int32(np.int32(np.int32(ix * plane) + np.int32(iy * line)) + np.int32(iz - origin))


@inlined
def _compare_neighbours(source: Any, out: Any, count: Any, shape: Any, flat: Any, index: Any, mixed: Any) -> Any:
    """The lowest neighbour's label everywhere, which is the answer where all neighbours agree; the positions of the others
    go to ``mixed``, and how many there are is the result."""
    plane = np.intp(shape[PLANE])
    line = np.intp(shape[LINE])
    found: Any = 0
    half = np.uint32(16)
    for k in range(count):
        p = np.intp(index[k])
        a = load_label_pair(source, p)
        different = np.uint32((a ^ load_label_pair(source, p + line)) | ((a ^ (a >> half)) & np.uint32(0xFFFF)))
        if not flat:
            different |= np.uint32(
                (a ^ load_label_pair(source, p + plane)) | (a ^ load_label_pair(source, p + plane + line))
            )
        out[k] = source[p]
        mixed[found] = k
        found += np.intp(different != 0)
    return found


@inlined
def _add_to_bundle(
    source: Any, rows: Any, start: Any, base: Any, found: Any, mixed: Any, index: Any, shape: Any, flat: Any,
    bundled: Any, labels: Any, weights: Any, nearest: Any, places: Any,
) -> None:  # fmt: skip
    """The labels of the neighbours of the mixed voxels and their weights, as columns of the bundle."""
    plane = shape[PLANE]
    line = shape[LINE]
    for m in range(found):
        n = bundled + m
        k = mixed[m] + start
        p = np.int64(index[mixed[m]])
        y = rows[PIECE + k]
        z = rows[2 * PIECE + k]
        iy = min(np.int64(y), shape[1] - 2)
        iz = min(np.int64(z), shape[2] - 2)
        fy = y - np.float64(iy)
        fz = z - np.float64(iz)
        near = p + line * (np.int64(nearest_voxel(y)) - iy) + (np.int64(nearest_voxel(z)) - iz)
        fx = 0.0
        if not flat:
            x = rows[k]
            ix = min(np.int64(x), shape[0] - 2)
            fx = x - np.float64(ix)
            near += plane * (np.int64(nearest_voxel(x)) - ix)
        nearest[n] = source[near]
        places[n] = base + k
        for corner in range(4 if flat else 8):
            a = corner >> 2
            b = (corner >> 1) & 1
            c = corner & 1
            labels[corner, n] = source[p + a * plane + b * line + c]
            weights[corner, n] = (fx if a else 1.0 - fx) * (fy if b else 1.0 - fy) * (fz if c else 1.0 - fz)


@inlined
def _settle_bundle(
    out: Any, count: Any, corners: Any, tiebreak: Any, labels: Any, weights: Any, nearest: Any, places: Any, scores: Any,
    best: Any, chosen: Any,
) -> None:  # fmt: skip
    """Write the label of the largest summed weight for each column of a bundle. Loops run along the bundle, for vectors."""
    best[:count] = -1.0
    for i in range(corners):
        score = scores[i]
        score[:count] = 0.0
        own = labels[i]
        for j in range(corners):
            other = labels[j]
            weight = weights[j]
            for n in range(count):
                score[n] += weight[n] if own[n] == other[n] else 0.0
        for n in range(count):
            best[n] = score[n] if score[n] > best[n] else best[n]
    highest = tiebreak == TIE_HIGHEST
    chosen[:count] = np.int32(-32769 if highest else 32768)
    for i in range(corners):
        score = scores[i]
        own = labels[i]
        if highest:
            for n in range(count):
                chosen[n] = own[n] if (score[n] >= best[n] - TIE) & (own[n] > chosen[n]) else chosen[n]
        else:
            for n in range(count):
                chosen[n] = own[n] if (score[n] >= best[n] - TIE) & (own[n] < chosen[n]) else chosen[n]
    if tiebreak == TIE_NEAREST:
        for i in range(corners):
            score = scores[i]
            own = labels[i]
            for n in range(count):
                chosen[n] = own[n] if (score[n] >= best[n] - TIE) & (own[n] == nearest[n]) else chosen[n]
    for n in range(count):
        out[places[n]] = np.int16(chosen[n])


@inlined
def _settle_rest(
    source: Any, out: Any, rows: Any, length: Any, start: Any, stop: Any, sampling: Any, pad: Any, tiebreak: Any,
    count: Any, index: Any, weight: Any, near: Any, labels: Any, scores: Any,
) -> None:  # fmt: skip
    """The voxels of a piece of one channel that are not in ``start ... stop``, one at a time."""
    shape, _, padding, _, flat = sampling
    for k in range(length):
        if (k >= start) & (k < stop):
            continue
        if padding == CONSTANT and touches_nothing(rows, k, shape, count // 2 - 1, flat):
            out[k] = pad
            continue
        x = 0 if flat else near[k]
        y = near[4 * PIECE + k]
        z = near[8 * PIECE + k]
        nearest = pad if (x < 0) | (y < 0) | (z < 0) else source[x * shape[PLANE] + y * shape[LINE] + z - shape[ORIGIN]]
        known = 0
        for a in range(1 if flat else count):
            x = 0 if flat else index[a * PIECE + k]
            wx = 1.0 if flat else weight[a * PIECE + k]
            for b in range(count):
                y = index[(4 + b) * PIECE + k]
                wy = wx * weight[(4 + b) * PIECE + k]
                for c in range(count):
                    z = index[(8 + c) * PIECE + k]
                    share = wy * weight[(8 + c) * PIECE + k]
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
        best = scores[0]
        for n in range(1, known):
            best = max(best, scores[n])
        winner = np.int32(-32769 if tiebreak == TIE_HIGHEST else 32768)
        for n in range(known):
            if scores[n] >= best - TIE:
                label = np.int32(labels[n])
                if (tiebreak == TIE_NEAREST) & (label == nearest):
                    winner = label
                    break
                winner = max(winner, label) if tiebreak == TIE_HIGHEST else min(winner, label)
        out[k] = np.int16(winner)


@kernel(
    "void(int16[:, ::1], int16[:, :, :, ::1], int64[::1], float64[:, ::1], float64[::1], float32[:, :, :, ::1],"
    " int64, int64, int64, int64, int16, int64, boolean, boolean)"
)
def resample_labels(
    source: Any, out: Any, shape: Any, matrix: Any, offset: Any, displacement: Any,
    first: Any, last: Any, mode: Any, padding: Any, pad: Any, tiebreak: Any, align_corners: Any, flat: Any,
) -> None:  # fmt: skip
    """Planes ``first`` to ``last`` (excluded) of a patch of labels, all channels.

    Args: as `detaug.kernels.resampling.resample_images`, and
        mode: `LINEAR` or `CUBIC` of `detaug.kernels.coordinates`.
        pad: the label outside, with a constant border.
        tiebreak: which label wins among those whose weights are equal.
    """
    rows = np.empty(3 * PIECE, np.float64)
    index = np.empty(PIECE, np.int32)
    mixed = np.empty(PIECE + 1, np.int64)
    labels = np.empty(64, np.int16)
    scores = np.empty(64, np.float64)
    bundle_labels = np.empty((8, _BUNDLE), np.int32)
    bundle_weights = np.empty((8, _BUNDLE), np.float64)
    bundle_scores = np.empty((8, _BUNDLE), np.float64)
    best = np.empty(_BUNDLE, np.float64)
    nearest_labels = np.empty(_BUNDLE, np.int32)
    chosen = np.empty(_BUNDLE, np.int32)
    places = np.empty(_BUNDLE, np.int64)
    tap_index = np.zeros(12 * PIECE, np.int64)
    near_index = np.zeros(12 * PIECE, np.int64)
    tap_weight = np.empty(12 * PIECE, np.float64)
    corners = 4 if flat else 8
    patch_map = Map(matrix, offset, displacement, first)
    sampling = Sampling(shape, mode, padding, align_corners, flat)
    nearest = Sampling(shape, NEAREST, padding, align_corners, flat)
    pieces = (out.shape[3] + PIECE - 1) // PIECE
    for c in range(source.shape[0]):
        channel = source[c]
        whole = out[c].reshape(-1)
        bundled = 0
        for number in range(first * out.shape[2] * pieces, last * out.shape[2] * pieces):
            i = number // (out.shape[2] * pieces)
            j = number // pieces % out.shape[2]
            begin = number % pieces * PIECE
            length = min(PIECE, out.shape[3] - begin)
            start, stop, low, high = place_piece(rows, patch_map, i, j, begin, length, sampling, source.shape[1])
            if mode != LINEAR:  # only pairs are compared first
                start = stop = low
            line = out[c, i, j, begin : begin + length]
            if stop > start:
                _lowest_neighbours(rows[start:], stop - start, shape, flat, index)
                found = _compare_neighbours(channel, line[start:], stop - start, shape, flat, index, mixed)
                base = (i * out.shape[2] + j) * out.shape[3] + begin
                _add_to_bundle(
                    channel, rows, start, base, found, mixed, index, shape, flat, bundled,
                    bundle_labels, bundle_weights, nearest_labels, places,
                )  # fmt: skip
                bundled += found
            line[:low] = pad
            line[high:] = pad
            if stop - start < high - low:
                part = rows[low:]
                tap_piece(part, high - low, start - low, stop - low, nearest, near_index, tap_weight)
                count = tap_piece(part, high - low, start - low, stop - low, sampling, tap_index, tap_weight)
                _settle_rest(
                    channel, line[low:high], part, high - low, start - low, stop - low, sampling, pad, tiebreak,
                    count, tap_index, tap_weight, near_index, labels, scores,
                )  # fmt: skip
            if (bundled > PIECE) | (number == last * out.shape[2] * pieces - 1):
                _settle_bundle(
                    whole, bundled, corners, tiebreak, bundle_labels, bundle_weights, nearest_labels,
                    places, bundle_scores, best, chosen,
                )  # fmt: skip
                bundled = 0
