"""A Numba kernel with threads, apart from the other pipelines: every new interpreter would import Numba for them."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


class SumsInParallel:
    """A Numba kernel with threads, and how many it had."""

    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "seen": parallel_sum(np.linspace(0.0, 1.0, 100_001))}


@numba.njit(parallel=True)  # type: ignore[untyped-decorator]
def parallel_sum(values: Any) -> Any:
    total = 0.0
    for i in numba.prange(values.size):
        total += values[i]
    return total, numba.get_num_threads()
