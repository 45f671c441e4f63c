"""Measures of the distance between a result and the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np


def largest_error(result: Any, exact: Any) -> float:
    """Return the largest absolute difference between two arrays."""
    return float(np.abs(result - exact).max())


def root_mean_square_error(result: Any, exact: Any) -> float:
    """Return the root of the mean squared difference between two arrays."""
    return float(np.sqrt(np.mean((result - exact) ** 2)))
