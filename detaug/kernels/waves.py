"""Plane waves, added to a volume: a factor for each axis, so that only lines are ever computed."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel
from detaug.kernels.lanes import LANES, everywhere, load, store


@kernel("void(float32[:,::1], float32[:,::1], float64[:,:,::1], float64[:,:,::1], float32[:,:,::1])")
def add_waves(source: Any, destination: Any, waves0: Any, waves1: Any, waves2: Any) -> None:
    """``x`` plus the sum over s of the real part of ``waves0[s, i] waves1[s, j] waves2[s, k]``.

    Args:
        source, destination: (X, Y * Z); may be one array.
        waves0, waves1: (S, 2, X) and (S, 2, Y), real and imaginary parts. waves2: (S, 2, Z).
    """
    n2 = waves2.shape[2]
    whole = n2 // LANES * LANES
    for i in range(waves0.shape[2]):
        plane, out = source[i], destination[i]
        for j in range(waves1.shape[2]):
            first = j * n2
            for s in range(waves0.shape[0]):
                re = np.float32(waves0[s, 0, i] * waves1[s, 0, j] - waves0[s, 1, i] * waves1[s, 1, j])
                im = np.float32(waves0[s, 0, i] * waves1[s, 1, j] + waves0[s, 1, i] * waves1[s, 0, j])
                cosines, sines, before = waves2[s, 0], waves2[s, 1], plane if s == 0 else out
                all_re, all_im = everywhere(re), everywhere(im)
                for k in range(0, whole, LANES):
                    wave = all_re * load(cosines, k) - all_im * load(sines, k)
                    store(out, first + k, load(before, first + k) + wave)
                for k in range(whole, n2):
                    out[first + k] = before[first + k] + (re * cosines[k] - im * sines[k])
