"""Axes of k-space: which frequency is where, and gains as kernels want them.

TorchIO and MONAI shift frequency 0 to the middle: of n, number s there is frequency s - n // 2.
"""

from __future__ import annotations

import numpy as np

from detaug.kernels.fourier import plan_of
from detaug.kernels.line_filter import filter_lines


def shifted(n: int, frequencies: np.ndarray) -> np.ndarray:
    """The place of frequencies, 0 to n - 1, in the shifted order."""
    return (frequencies + n // 2) % n


def filter_axis(volumes: np.ndarray, destination: np.ndarray, axis: int, gains: np.ndarray) -> None:
    """Multiply volumes' k-space by gains along one axis, add them up, and take the real part of the image.

    A real image's coefficients at a frequency and its negative are conjugates, so that the real part is what the mean of
    the two gains gives.

    Args:
        volumes: (S, *space) float32. destination: (*space); may be the memory of the only volume.
        axis: spatial axis.
        gains: (S, n), real, in the shifted order.
    """
    n = destination.shape[axis]
    plan = plan_of(n)
    real = 0.5 * (gains[:, shifted(n, plan.frequency)] + gains[:, shifted(n, -plan.frequency)]) / n
    inner = int(np.prod(destination.shape[axis + 1 :]))
    filter_lines(
        volumes.reshape(len(volumes), -1), destination.reshape(-1), inner, plan.radices, plan.twiddles,
        np.ascontiguousarray(real, np.float32),
    )  # fmt: skip
