"""How far a result is from the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np


def largest_error(result: Any, exact: Any) -> float:
    """Return the largest difference of two arrays' values."""
    return float(np.abs(result - exact).max())


def root_mean_square_error(result: Any, exact: Any) -> float:
    """Return the root of the mean squared difference."""
    return float(np.sqrt(np.mean((result - exact) ** 2)))
