"""The planes in the middle of a volume."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[np.float32]
Mask = NDArray[np.bool_]

#: Planes with longer edges are thinned out: no picture is larger.
_LONGEST = 1024

#: Labels whose outlines are told apart; a segmentation with more of them is none.
_MOST_LABELS = 256


@dataclass(frozen=True)
class Plane:
    """One plane of a sample.

    Attributes:
        image: (rows, columns), float32; a copy.
        masks: label → where it is, of the same shape. Regions are labels 1, 2, ... and may overlap.
        aspect: a pixel's height over its width.
    """

    image: Image
    masks: Mapping[int, Mask]
    aspect: float = 1.0


def planes_of(
    image: Any, labels: Any = None, *, spacing: Sequence[float] | None = None, channel: int = 0
) -> tuple[Plane, ...]:
    """The three planes in the middle of a volume, across its first, second and third axis, or a 2-D sample itself. Only these are
    read. A volume's first axis, nnU-Net's from the feet to the head, runs upwards; all others run downwards or to the right.

    Args:
        image: (C, X, Y) or (C, X, Y, Z).
        labels: (C, X, Y[, Z]): labels in the first channel; or, if they are bool, a region in each channel. Of a list (deep
            supervision) the first. What has another spatial shape than the image is left out.
        spacing: lengths of a voxel's edges, one for each axis; None: they are equal.
        channel: which of the image's is shown.

    Raises:
        ValueError: no such channel, or another number of axes.
    """
    shape = tuple(image.shape)
    if len(shape) not in (3, 4):
        raise ValueError(f"an image must be (C, X, Y) or (C, X, Y, Z), got {shape}")
    if not 0 <= channel < shape[0]:
        raise ValueError(f"there is no channel {channel}: the image has {shape[0]}, from 0 to {shape[0] - 1}")
    if isinstance(labels, (list, tuple)):
        labels = labels[0] if labels else None
    if labels is not None and tuple(labels.shape[1:]) != shape[1:]:
        labels = None
    edges = tuple(spacing) if spacing is not None and len(spacing) == len(shape) - 1 else (1.0,) * (len(shape) - 1)
    if len(shape) == 3:
        return (_plane(image[channel], labels, (slice(None), slice(None)), edges[0] / edges[1]),)
    found = []
    for across in range(3):
        where: list[Any] = [slice(None)] * 3
        where[across] = shape[1 + across] // 2
        row, column = (axis for axis in range(3) if axis != across)
        found.append(_plane(image[channel], labels, tuple(where), edges[row] / edges[column], upwards=row == 0))
    return tuple(found)


def _plane(image: Any, labels: Any, where: tuple[Any, ...], aspect: float, upwards: bool = False) -> Plane:
    def seen(values: Any) -> np.ndarray:
        plane = np.asarray(values[where].detach().cpu() if hasattr(values, "detach") else values[where])
        step = -(-max(plane.shape) // _LONGEST)
        return plane[:: -step if upwards else step, ::step]

    masks: dict[int, Mask] = {}
    if labels is not None and str(labels.dtype).endswith("bool"):
        masks = {n + 1: seen(each).copy() for n, each in enumerate(labels)}
    elif labels is not None:
        values = seen(labels[0])
        present = np.unique(values[np.isfinite(values)])
        if len(present) <= _MOST_LABELS:
            masks = {int(value): values == value for value in present if value != 0}
    return Plane(
        np.array(seen(image), np.float32), {label: mask for label, mask in masks.items() if mask.any()}, aspect
    )
