"""Balls and disks of voxels as scikit-image makes them, and binary dilation and erosion by them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from detaug.kernels.bits import invert
from detaug.kernels.morphology import dilate


@dataclass(frozen=True)
class Footprint:
    """A set of offsets whose rows along the last axis are runs (see `detaug.kernels.morphology.dilate`).

    A plane's footprint has ``row0`` 0 throughout. ``shape`` is that of the array that scikit-image would make.
    """

    shape: tuple[int, ...]
    low: np.ndarray
    high: np.ndarray
    last: np.ndarray
    row0: np.ndarray
    row1: np.ndarray

    def as_array(self) -> np.ndarray:
        """The footprint as a boolean array of its shape."""
        result = np.zeros((1,) * (3 - len(self.shape)) + self.shape, dtype=bool)
        center = [(n - 1) // 2 for n in result.shape]
        begin = 0
        for low, high, end in zip(self.low, self.high, self.last, strict=True):
            for i, j in zip(self.row0[begin:end], self.row1[begin:end], strict=True):
                result[i + center[0], j + center[1], low + center[2] : high + center[2] + 1] = True
            begin = end
        return result.reshape(self.shape)


@lru_cache(maxsize=256)
def ball(radius: float) -> Footprint:
    """`skimage.morphology.ball`: ``int(2 radius + 1)`` points, evenly from -radius to radius along each axis, of which
    those within the radius belong to it. Between whole and half radii the points are farther than a voxel apart.
    """
    count = int(2 * radius + 1)
    step = (radius + radius) / (count - 1) if count > 1 else 1.0
    positions = [i * step + -radius for i in range(count)]
    return _round(positions, 3, radius * radius)


@lru_cache(maxsize=256)
def disk(radius: float) -> Footprint:
    """`skimage.morphology.disk`: points one voxel apart, from -radius on, of which those within the radius belong to
    it.
    """
    count = _ceil(2 * radius + 1) if radius else 1
    step = (-radius + 1) - -radius
    return _round([-radius + i * step for i in range(count)], 2, radius * radius)


def _ceil(x: float) -> int:
    return -int(-x // 1)


def _round(positions: list[float], dims: int, limit: float) -> Footprint:
    count, center = len(positions), (len(positions) - 1) // 2
    squares = [position * position for position in positions]
    rows: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for i in range(count) if dims == 3 else (center,):
        for j in range(count):
            beyond = squares[i] if dims == 3 else 0.0
            within = [k - center for k in range(count) if (squares[k] + squares[j]) + beyond <= limit]
            if within:
                rows.setdefault((within[0], within[-1]), []).append((i - center, j - center))
    runs = sorted(rows, key=lambda run: run[1] - run[0])
    ends = np.cumsum([len(rows[run]) for run in runs], dtype=np.int64)
    places = np.array([place for run in runs for place in rows[run]], dtype=np.int64).reshape(-1, 2)
    bounds = np.array(runs, dtype=np.int64).reshape(-1, 2)
    return Footprint((count,) * dims, *(np.ascontiguousarray(a) for a in (*bounds.T, ends, *places.T)))


def apply_operator(name: str, bits: np.ndarray, voxels: int, footprint: Footprint) -> np.ndarray:
    """A binary operator on a volume of bits (n0, n1, words); what is returned is another array.

    Dilation sees nothing set outside the volume, erosion everything, as its complement is dilated.
    """
    steps: Sequence[str] = {
        "dilation": ("dilation",),
        "erosion": ("erosion",),
        "closing": ("dilation", "erosion"),
        "opening": ("erosion", "dilation"),
    }[name]
    spread, result, current = np.empty_like(bits), np.empty_like(bits), bits.copy()
    for step in steps:
        if step == "erosion":
            invert(_rows(current), voxels)
        dilate(
            current,
            voxels,
            footprint.low,
            footprint.high,
            footprint.last,
            footprint.row0,
            footprint.row1,
            spread,
            result,
        )
        if step == "erosion":
            invert(_rows(result), voxels)
        current, result = result, current
    return current


def _rows(bits: np.ndarray) -> np.ndarray:
    return bits.reshape(-1, bits.shape[-1])
