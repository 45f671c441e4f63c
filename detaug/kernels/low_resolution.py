"""Linear interpolation between planes, rows or voxels of a coarse image."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import inlined, kernel


@inlined
def _between(a: Any, b: Any, weight: Any, weighs_both: Any) -> Any:
    """Return the value between two, rounded in one of two ways.

    Args:
        a, b: the two values.
        weight: of the second one, 0 to 1.
        weighs_both: True: the weighted sum, which is b itself at 1. False: the first value and a
            part of the difference, which leaves equal values as they are.
    """
    if weighs_both:
        return a * (np.float32(1) - weight) + b * weight
    return a + weight * (b - a)


@kernel("void(float32[:,:,::1], float32[:,:,::1], int64[::1], float32[::1], boolean)")
def interpolate(coarse: Any, out: Any, lower: Any, weight: Any, weighs_both: Any) -> None:
    """Interpolate along the middle axis.

    Args:
        coarse: (outer, m, inner).
        out: (outer, n, inner).
        lower: (n,), for each voxel of n the one of m before it.
        weight: (n,), the weight of the next one; the last one's next is itself.
        weighs_both: True: ``a (1 - weight) + b weight``. False: ``a + weight (b - a)``.
    """
    inner = np.uint64(out.shape[2])
    last = coarse.shape[1] - 1
    for o in range(out.shape[0]):
        # Along the last axis `inner` is 1: one loop over the line, not one for each voxel.
        if inner == 1:
            line = coarse[o].reshape(-1)
            line_out = out[o].reshape(-1)
            # Unsigned: a signed index would be tested for its sign.
            for i in range(np.uint64(line_out.shape[0])):
                a = line[np.uint64(lower[i])]
                b = line[np.uint64(min(lower[i] + 1, last))]
                line_out[i] = _between(a, b, weight[i], weighs_both)
            continue
        for i in range(out.shape[1]):
            # Views are made outside the loop over voxels: each one counts a reference.
            lower_line = coarse[o, lower[i]]
            upper_line = coarse[o, min(lower[i] + 1, last)]
            line_out = out[o, i]
            line_weight = weight[i]
            for k in range(inner):
                line_out[k] = _between(lower_line[k], upper_line[k], line_weight, weighs_both)
