"""Mirroring and transposing volumes: every voxel keeps its value and goes to another place.

Arrays are flat here and of an unsigned type as wide as their own: only bits are moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel

# Voxels of the source's last axis are next to each other in memory, those of the destination along another one. A tile
# that is this deep along the latter reads whole cache lines and keeps them until all of each has been used.
_TILE = 16

_WIDTHS = ("uint8", "uint16", "uint32", "uint64")
_SIZES_AND_STRIDES = ", ".join(["int64"] * 7)


@kernel(*(f"void({width}[::1], {width}[::1], {_SIZES_AND_STRIDES})" for width in _WIDTHS))
def copy_rows(source: Any, destination: Any, start: Any, n0: Any, n1: Any, n2: Any, s0: Any, s1: Any, s2: Any) -> None:
    """``destination[i, j, k] = source[start + i s0 + j s1 + k s2]``, s2 = 1 or -1; the destination is (n0, n1, n2)."""
    last = np.uint64(n2 - 1)
    for i in range(n0):
        for j in range(n1):
            first = (i * n1 + j) * n2
            out = destination[first : first + n2]
            begin = start + i * s0 + j * s1
            if s2 < 0:
                row = source[begin - n2 + 1 : begin + 1]
                for k in range(np.uint64(n2)):
                    out[k] = row[last - k]
            else:
                row = source[begin : begin + n2]
                for k in range(n2):
                    out[k] = row[k]


@kernel(*(f"void({width}[::1], {width}[::1], {_SIZES_AND_STRIDES})" for width in _WIDTHS))
def copy_tiles(source: Any, destination: Any, start: Any, n0: Any, n1: Any, n2: Any, s0: Any, s1: Any, s2: Any) -> None:
    """``destination[i, j, k] = source[start + i s0 + j s1 + k s2]``, s0 or s1 = 1 or -1, in tiles over that axis and
    the last; the destination is (n0, n1, n2).
    """
    # the axis along which the source is contiguous runs inside, the other one outside
    inside_is_1 = abs(s1) == 1
    n_out, s_out, d_out = (n0, s0, n1 * n2) if inside_is_1 else (n1, s1, n2)
    n_in, s_in, d_in = (n1, s1, n2) if inside_is_1 else (n0, s0, n1 * n2)
    for o in range(n_out):
        for k_first in range(0, n2, _TILE):
            k_end = min(k_first + _TILE, n2)
            for i in range(n_in):
                to = o * d_out + i * d_in
                begin = start + o * s_out + i * s_in
                for k in range(k_first, k_end):
                    destination[np.uint64(to + k)] = source[np.uint64(begin + k * s2)]


@kernel(*(f"void({width}[::1], int64, int64, int64, boolean, boolean, boolean)" for width in _WIDTHS))
def flip_in_place(volume: Any, n0: Any, n1: Any, n2: Any, flip0: Any, flip1: Any, flip2: Any) -> None:
    """Mirror an (n0, n1, n2) volume along the axes whose flag is set."""
    last = np.uint64(n2 - 1)
    one, other = np.empty(n2, volume.dtype), np.empty(n2, volume.dtype)
    for here in range(n0 * n1):
        i = here // n1
        j = here % n1
        there = (n0 - 1 - i if flip0 else i) * n1 + (n1 - 1 - j if flip1 else j)
        if there < here:
            continue  # swapped when it was the other way round
        row = volume[here * n2 : here * n2 + n2]
        partner = volume[there * n2 : there * n2 + n2]
        if not flip2:
            for k in range(n2):
                value = row[k]
                row[k] = partner[k]
                partner[k] = value
            continue
        # by way of copies, for the compiler uses no vectors where a row is read backwards and written to
        for k in range(n2):
            one[k] = row[k]
        if there > here:
            for k in range(n2):
                other[k] = partner[k]
            for k in range(np.uint64(n2)):
                row[k] = other[last - k]
        for k in range(np.uint64(n2)):
            partner[k] = one[last - k]
