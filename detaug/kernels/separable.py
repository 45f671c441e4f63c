"""Images resampled through a map that takes axes to axes: a patch that is scaled and shifted, but not turned.

Where a voxel lies along an axis then depends on its number along that axis alone. So lines of the source are interpolated
along z once, and pairs of these along y, for all voxels of the patch that draw on them. Each voxel's arithmetic is that of
`detaug.kernels.resampling`, step by step: the bytes are the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel
from detaug.kernels.pointers import load_float_pair


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
