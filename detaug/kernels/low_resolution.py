"""Linear interpolation between planes, rows or voxels of a coarse image."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel


@inlined
def _between(a: Any, b: Any, share: Any, of_ends: Any) -> Any:
    return a * (np.float32(1) - share) + b * share if of_ends else a + share * (b - a)


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64[::1], float32[::1], boolean)")
def interpolate(coarse: Any, out: Any, lower: Any, weight: Any, of_ends: Any) -> None:
    """Interpolate along the middle axis, from (outer, m, inner) to (outer, n, inner).

    Args:
        lower, weight: for each of n, the one of m before it and the weight of the next one (the
            last one's next is itself).
        of_ends: ``a (1 - weight) + b weight``, else ``a + weight (b - a)``: how they are rounded.
    """
    inner = np.uint64(out.shape[2])
    last = coarse.shape[1] - 1
    for o in range(out.shape[0]):
        if inner == 1:
            line = coarse[o].reshape(-1)
            line_out = out[o].reshape(-1)
            for i in range(
                np.uint64(line_out.shape[0])
            ):  # unsigned: a signed index would be tested for its sign
                a = line[np.uint64(lower[i])]
                b = line[np.uint64(min(lower[i] + 1, last))]
                line_out[i] = _between(a, b, weight[i], of_ends)
            continue
        for i in range(out.shape[1]):
            one = coarse[o, lower[i]]
            other = coarse[o, min(lower[i] + 1, last)]
            line_out = out[o, i]
            share = weight[i]
            for k in range(inner):
                line_out[k] = _between(one[k], other[k], share, of_ends)
