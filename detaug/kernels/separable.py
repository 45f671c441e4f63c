"""Resampling through a map that takes axes to axes: a patch that is scaled and shifted, but not turned.

Where a voxel lies along an axis then depends on its number along that axis alone. So lines of the source are interpolated
along z once, and pairs of these along y, for all voxels of the patch that draw on them. Each voxel's arithmetic is that of
`detaug.kernels.resampling` and `detaug.kernels.label_resampling`, step by step: the bytes are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.coordinates import PIECE, PITCH
from detaug.kernels.label_resampling import add_to_bundle, new_bundle, settle_bundle, settle_piece
from detaug.kernels.pointers import load_float_pair, load_label_pair


@inlined
def _between(one: Any, other: Any, part: Any, out: Any) -> None:
    for k in range(out.shape[0]):
        out[k] = one[k] + part * (other[k] - one[k])


@inlined
def _plane_between(plane: Any, low1: Any, part1: Any, low2: Any, part2: Any, pairs: Any, lines: Any, out: Any) -> None:
    """A plane of the source, interpolated along its own two axes. Two of its lines, interpolated along theirs, are kept."""
    n2 = low2.shape[0]
    values = pairs.view(np.float32)
    even: Any = -1
    odd: Any = -1
    for j in range(low1.shape[0]):
        for y in range(low1[j], low1[j] + 2):
            if y == (odd if y % 2 else even):
                continue
            row = plane[y]
            line = lines[1] if y % 2 else lines[0]
            for k in range(n2):
                pairs[k] = load_float_pair(row, low2[k])
            for k in range(n2):
                line[k] = values[2 * k] + part2[k] * (values[2 * k + 1] - values[2 * k])
            if y % 2:
                odd = y
            else:
                even = y
        lower = low1[j] % 2
        _between(lines[lower], lines[1 - lower], part1[j], out[j])


@kernel(
    "void(float32[:,:,:,::1], float32[:,:,:,::1], int64[::1], float32[::1], int64[::1], float32[::1], int64[::1],"
    " float32[::1], boolean)"
)
def interpolate_axes(
    source: Any, out: Any, low0: Any, part0: Any, low1: Any, part1: Any, low2: Any, part2: Any, flat: Any
) -> None:  # fmt: skip
    """A patch of images, all channels, linearly.

    Args:
        source, out: (C, X, Y, Z) each.
        low, part: for each axis and voxel of the patch, the neighbour below it in the source, which has a next one, and how
            far from there to that one the voxel lies.
        flat: two-dimensional: one plane, without interpolation along the first axis.
    """
    n0, n1, n2 = low0.shape[0], low1.shape[0], low2.shape[0]
    pairs = np.empty(n2, np.uint64)
    lines = np.empty((2, n2), np.float32)
    planes = np.empty((2, n1, n2), np.float32)
    for c in range(source.shape[0]):
        if flat:
            _plane_between(source[c, 0], low1, part1, low2, part2, pairs, lines, out[c, 0])
            continue
        even: Any = -1
        odd: Any = -1
        for i in range(n0):
            for x in range(low0[i], low0[i] + 2):
                if x == (odd if x % 2 else even):
                    continue
                _plane_between(source[c, x], low1, part1, low2, part2, pairs, lines, planes[x % 2])
                if x % 2:
                    odd = x
                else:
                    even = x
            lower = low0[i] % 2
            one, other = planes[lower].reshape(-1), planes[1 - lower].reshape(-1)
            _between(one, other, part0[i], out[c, i].reshape(-1))


@inlined
def _gathered(plane: Any, distinct1: Any, low2: Any, out: Any) -> None:
    """Pairs of labels that are neighbours along z, for each distinct line and each voxel of a line of the patch."""
    for y in range(distinct1.shape[0]):
        row = plane[distinct1[y]]
        line = out[y]
        for k in range(low2.shape[0]):
            line[k] = load_label_pair(row, low2[k])


@kernel(
    "void(int16[:,:,:,::1], int16[:,:,:,::1], int64[::1], float32[::1], float64[::1], int64[::1], int64[::1], float32[::1],"
    " float64[::1], int64[::1], float32[::1], float64[::1], int64[::1], int64, boolean)"
)
def settle_axes(
    source: Any, out: Any, low0: Any, part0: Any, place0: Any, distinct1: Any, line1: Any, part1: Any, place1: Any,
    low2: Any, part2: Any, place2: Any, shape: Any, tiebreak: Any, flat: Any,
) -> None:  # fmt: skip
    """A patch of labels, all channels, linearly.

    Args:
        source, out: (C, X, Y, Z) each.
        low, part: as `interpolate_axes` has them.
        distinct1: the lines of a plane of the source that voxels of the patch draw on, each once. line1: for each line of the
            patch, the number of the lower one among them; the next is the upper one.
        place: where voxels of the patch lie, from the source's first voxel on.
        shape: (3,), the extents of the source.
        tiebreak, flat: as elsewhere.
    """
    n0, n1, n2 = place0.shape[0], place1.shape[0], place2.shape[0]
    planes = np.empty((2, distinct1.shape[0], n2), np.uint32)
    parts = np.zeros(3 * PITCH, np.float32)
    chosen = np.empty(PIECE, np.int32)
    unsettled = np.empty(PIECE + 1, np.int64)
    labels = np.empty(64, np.int16)
    scores = np.empty(64, np.float64)
    bundle = new_bundle()
    for ch in range(source.shape[0]):
        whole = out[ch].reshape(-1)
        bundled = np.intp(0)  # of the type that it will have: Numba compiles what a literal is handed to once more
        even: Any = -1
        odd: Any = -1
        for i in range(n0):
            for x in range(low0[i], low0[i] + (1 if flat else 2)):
                if x == (odd if x % 2 else even):
                    continue
                _gathered(source[ch, x], distinct1, low2, planes[x % 2])
                if x % 2:
                    odd = x
                else:
                    even = x
            lower = low0[i] % 2
            upper = lower if flat else 1 - lower
            for j in range(n1):
                y = line1[j]
                for begin in range(0, n2, PIECE):
                    end = min(begin + PIECE, n2)
                    a, b = planes[lower, y, begin:], planes[lower, y + 1, begin:]
                    c, d = planes[upper, y, begin:], planes[upper, y + 1, begin:]
                    for k in range(end - begin):  # slices would be compiled for longer
                        parts[k] = part0[i]
                        parts[PITCH + k] = part1[j]
                        parts[2 * PITCH + k] = part2[begin + k]
                    found = settle_piece(a, b, c, d, parts, out[ch, i, j, begin:end], chosen, unsettled)
                    for m in range(found):
                        k = unsettled[m]
                        add_to_bundle(
                            bundle, bundled + m, a[k], b[k], c[k], d[k], place0[i], place1[j], place2[begin + k],
                            (i * n1 + j) * n2 + begin + k,
                        )  # fmt: skip
                    bundled += found
                    if bundled > PIECE:
                        settle_bundle(whole, bundled, shape, tiebreak, bundle, labels, scores)
                        bundled = np.intp(0)
        settle_bundle(whole, bundled, shape, tiebreak, bundle, labels, scores)
