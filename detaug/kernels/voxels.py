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
    """Mirror an (n0, n1, n2) volume along the axes whose flag is set."""
    last = np.uint64(n2 - 1)
    one = np.empty(n2, volume.dtype)
    other = np.empty(n2, volume.dtype)
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
        # by way of copies, for the compiler uses no vectors where a row is read backwards and
        # written to
        for k in range(n2):
            one[k] = row[k]
        if there > here:
            for k in range(n2):
                other[k] = partner[k]
            for k in range(np.uint64(n2)):
                row[k] = other[last - k]
        for k in range(np.uint64(n2)):
            partner[k] = one[last - k]


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
                for k in range(destination.shape[3]):
                    out[k] = row[
                        np.uint64(rows2[k])
                    ]  # unsigned: a signed index would be tested for its sign


def picked(array: np.ndarray, places: Sequence[np.ndarray]) -> np.ndarray:
    """Return a new array of some voxels of a contiguous (C, *space).

    Of each axis those are given in their order, int64.
    """
    out = np.empty((len(array), *map(len, places)), array.dtype)
    kind, lift = f"u{array.itemsize}", (1,) * (3 - len(places))  # a plane is a volume of one slice
    source = array.view(kind).reshape(len(array), *lift, *array.shape[1:])
    pick(
        source,
        *(_FIRST,) * len(lift),
        *places,
        out.view(kind).reshape(len(out), *lift, *out.shape[1:]),
    )
    return out


def padded(volume: np.ndarray, widths: Sequence[tuple[int, int]], mode: str) -> np.ndarray:
    """Return a copy of a volume (X, Y, Z) that is longer before and after it along each axis.

    Args:
        mode: what is there, in NumPy's words: "reflect" (``c b | a b c | b a``), "symmetric" (``b a
            | a b c | c b``), "edge" (``a a | a b c | c c``) or "wrap" (``b c | a b c | a b``);
            again and again where the volume is shorter.
    """
    places = [_places(n, *width, mode) for n, width in zip(volume.shape, widths, strict=True)]
    result: np.ndarray = picked(volume[None], places)[0]
    return result


@lru_cache(256)  # of planes it takes longer than to move them
def _places(n: int, before: int, behind: int, mode: str) -> np.ndarray:
    places = np.arange(-before, n + behind)
    if mode == "wrap":
        return places % n
    if mode == "edge":
        return np.clip(places, 0, n - 1)
    twice = int(mode == "symmetric")  # whether the outermost voxels are there twice
    period = max(1, 2 * n - 2 + 2 * twice)
    return np.minimum(places % period, period - twice - places % period)


@kernel(*(f"void({kind}[::1], {kind}, {kind})" for kind in (*_WIDTHS, "float32", "float64")))
def replace_label(labels: Any, label: Any, replacement: Any) -> None:
    """Write another value in place of one label.

    Floats are compared as they are, for two of their zeros are equal.
    """
    for i in range(labels.shape[0]):
        value = labels[i]
        labels[i] = replacement if value == label else value
