"""Mirroring volumes: every voxel keeps its value and goes to another place.

Arrays are flat here and of an unsigned type as wide as their own: only bits are moved.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel

_WIDTHS = ("uint8", "uint16", "uint32", "uint64")


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
