"""Voxels mirrored, picked and replaced, and volumes continued beyond their ends.

Only bits are moved: kernels get arrays of an unsigned type as wide as their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel

_WIDTHS = ("uint8", "uint16", "uint32", "uint64")
_FIRST = np.zeros(1, np.int64)


@kernel(
    *(f"void({width}[::1], int64, int64, int64, boolean, boolean, boolean)" for width in _WIDTHS)
)
def flip_in_place(
    volume: Any, n0: Any, n1: Any, n2: Any, flip0: Any, flip1: Any, flip2: Any
) -> None:
    """Mirror an (n0, n1, n2) volume, given as flat memory, along the axes whose flag is set."""
    last = np.uint64(n2 - 1)
    row_copy = np.empty(n2, volume.dtype)
    partner_copy = np.empty(n2, volume.dtype)
    for number in range(n0 * n1):
        i = number // n1
        j = number % n1
        partner_i = n0 - 1 - i if flip0 else i
        partner_j = n1 - 1 - j if flip1 else j
        partner_number = partner_i * n1 + partner_j
        if partner_number < number:
            # Exchanged when the partner's turn was.
            continue
        row = volume[number * n2 : number * n2 + n2]
        partner = volume[partner_number * n2 : partner_number * n2 + n2]
        if not flip2:
            for k in range(n2):
                value = row[k]
                row[k] = partner[k]
                partner[k] = value
            continue
        # By way of copies, for the compiler uses no vectors where a row is read backwards and
        # written to.
        for k in range(n2):
            row_copy[k] = row[k]
        if partner_number > number:
            for k in range(n2):
                partner_copy[k] = partner[k]
            for k in range(np.uint64(n2)):
                row[k] = partner_copy[last - k]
        for k in range(np.uint64(n2)):
            partner[k] = row_copy[last - k]


@kernel(
    *(
        f"void({width}[:,:,:,::1], int64[::1], int64[::1], int64[::1], {width}[:,:,:,::1])"
        for width in _WIDTHS
    )
)
def pick(source: Any, rows0: Any, rows1: Any, rows2: Any, destination: Any) -> None:
    """Write ``destination[c, i, j, k] = source[c, rows0[i], rows1[j], rows2[k]]``."""
    for c in range(destination.shape[0]):
        for i in range(destination.shape[1]):
            for j in range(destination.shape[2]):
                row = source[c, rows0[i], rows1[j]]
                out = destination[c, i, j]
                # Unsigned: a signed index would be tested for its sign.
                for k in range(destination.shape[3]):
                    out[k] = row[np.uint64(rows2[k])]


def picked(array: np.ndarray, indices: Sequence[np.ndarray]) -> np.ndarray:
    """Return a new array of some voxels of another one.

    Args:
        array: (C, X, Y[, Z]), contiguous.
        indices: for each spatial axis those of the wanted voxels, in order, int64.
    """
    out = np.empty((len(array), *map(len, indices)), array.dtype)
    # The kernel knows volumes only: a plane is a volume of one slice.
    num_missing = 3 - len(indices)
    lead = (1,) * num_missing
    unsigned = f"u{array.itemsize}"
    # Copied as bits: one signature for each width serves all dtypes.
    source = array.view(unsigned).reshape(len(array), *lead, *array.shape[1:])
    destination = out.view(unsigned).reshape(len(out), *lead, *out.shape[1:])
    pick(source, *[_FIRST] * num_missing, *indices, destination)
    return out


def padded(volume: np.ndarray, widths: Sequence[tuple[int, int]], mode: str) -> np.ndarray:
    """Return a copy of a volume (X, Y, Z) that is longer before and after it along each axis.

    Args:
        volume: the volume.
        widths: for each axis, the number of voxels before it and after it.
        mode: what is there, in NumPy's words: "reflect" (``c b | a b c | b a``), "symmetric" (``b a
            | a b c | c b``), "edge" (``a a | a b c | c c``) or "wrap" (``b c | a b c | a b``);
            again and again where the volume is shorter.
    """
    indices = []
    for n, (before, after) in zip(volume.shape, widths, strict=True):
        indices.append(_padded_indices(n, before, after, mode))
    (result,) = picked(volume[None], indices)
    return result  # type: ignore[no-any-return]


# Cached because for a plane it takes longer than to move its voxels.
@lru_cache(256)
def _padded_indices(n: int, before: int, after: int, mode: str) -> np.ndarray:
    """Return the voxel at each position of an axis, from ``-before`` to ``n + after - 1``."""
    positions = np.arange(-before, n + after)
    if mode == "wrap":
        return positions % n
    if mode == "edge":
        return np.clip(positions, 0, n - 1)
    # There and back is one period. "symmetric" has the outermost voxels twice in it.
    repeated = 1 if mode == "symmetric" else 0
    # "reflect" on an axis of one voxel would have a period of 0; with 1 it repeats the voxel.
    period = max(1, 2 * n - 2 + 2 * repeated)
    forth = positions % period
    return np.minimum(forth, period - repeated - forth)


@kernel(*(f"void({kind}[::1], {kind}, {kind})" for kind in (*_WIDTHS, "float32", "float64")))
def replace_label(labels: Any, label: Any, replacement: Any) -> None:
    """Write another value in place of one label.

    Floats are compared as they are, for two of their zeros are equal.
    """
    # Every value is written, changed or not: a store on a condition keeps loops from vectors.
    for i in range(labels.shape[0]):
        value = labels[i]
        labels[i] = replacement if value == label else value
