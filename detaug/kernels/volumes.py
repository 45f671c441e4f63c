"""Images as volumes: kernels are written for three axes, and for long lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def axes_of_volume(shape: Sequence[int]) -> tuple[int | None, int | None, int | None]:
    """The axes of a 2-D or 3-D image that a volume (X, Y, Z) of the same memory has; None for an axis of one voxel.

    Axes of a single voxel are left out and the last one that is longer becomes Z, X the one before it, so that an image
    of one plane is worked on line by line.
    """
    long = [axis for axis, n in enumerate(shape) if n > 1]
    if len(long) == 3:
        return long[0], long[1], long[2]
    if len(long) == 2:
        return long[0], None, long[1]
    return None, None, long[0] if long else None


def per_axis(values: Sequence[T], axes: tuple[int | None, int | None, int | None], otherwise: T) -> tuple[T, T, T]:
    """Each of the volume's axes' own value."""
    x, y, z = (otherwise if axis is None else values[axis] for axis in axes)
    return x, y, z
