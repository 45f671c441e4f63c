"""Where and how strongly a local transform changes an image."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.kernels.windows import window_factors
from detaug.transforms.building.per_channel import per_axis

_ONE = np.ones(1)
_NOTHING = 2.0**-150  # rounds to 0 in float32


class LocalWindow:
    """A Gaussian's share of every voxel, shifted and scaled to 0 ... 1 over the image, held as one factor per axis.

    Far from the Gaussian's centre it saturates where batchgeneratorsv2's does: if the image's first face is more than 8.2
    standard deviations above the centre along any axis, or the largest share is below float32's least number, 1.4e-45, then
    there is nothing (`detaug.kernels.windows.window_factors`).

    Args:
        shape: the image's spatial shape.
        loc: the Gaussian's centre along each axis, in parts of the axis' length.
        scale: its standard deviation along each axis, in voxels, > 0.

    Attributes:
        arguments: factors along X and Y, drop along Z, least product, as kernels take them.
        is_flat: whether all voxels have the same share, or none; then the window is 0 everywhere.
    """

    def __init__(self, shape: Sequence[int], loc: Sequence[float], scale: Sequence[float]) -> None:
        self._factors = []
        largest = 1.0
        for n, where, width in zip(shape, loc, scale, strict=True):
            factors = np.empty(n)
            largest *= window_factors(factors, float(where) * n, float(width))
            self._factors.append(factors)
        self._least = 1.0
        for factors in self._factors:
            self._least *= float(factors.min())
        self.is_flat = self._least >= 1.0 or largest < _NOTHING
        if not self.is_flat:
            along = per_axis(self._factors, shape, _ONE)
            drop = ((1.0 - along[2]) / (1.0 - self._least)).astype(np.float32)
            self.arguments = along[0], along[1], drop, self._least

    def mean(self) -> float:
        """The window's mean over all voxels."""
        if self.is_flat:
            return 0.0
        product = 1.0
        for factors in self._factors:
            product *= _sum(factors) / len(factors)
        return (product - self._least) / (1.0 - self._least)

    def sum(self) -> float:
        """The window's sum over all voxels."""
        voxels = 1
        for factors in self._factors:
            voxels *= len(factors)
        return self.mean() * voxels

    def values(self, mean_centered: bool = False) -> np.ndarray:
        """The window as a float32 array of the image's spatial shape, for callables that ask for it."""
        product = np.ones((1,) * len(self._factors))
        for axis, factors in enumerate(self._factors):
            product = product * factors.reshape([-1 if d == axis else 1 for d in range(len(self._factors))])
        if self.is_flat:
            return np.zeros(product.shape, np.float32)
        window = (product - self._least) / (1.0 - self._least)
        return (window - (self.mean() if mean_centered else 0.0)).astype(np.float32)


def _sum(numbers: np.ndarray) -> float:
    """One after another: NumPy's order of additions depends on the CPU's vectors."""
    total = 0.0
    for number in numbers.tolist():
        total += number
    return total
