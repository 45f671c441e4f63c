"""The planes in the middle of a volume, as a reader of scans expects to see them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.errors import UnusableError

Image = NDArray[np.float32]
Mask = NDArray[np.bool_]

#: nnU-Net's axes, of a scan that lies as most do: slices upwards, rows to the back, columns to the left.
NNUNET = "SPL"

#: Planes with longer edges are thinned out: no picture is larger.
_LONGEST = 1024

#: Labels whose outlines are told apart; a segmentation with more of them is none.
_MOST_LABELS = 256

_AXES = {"S": "SI", "I": "SI", "A": "AP", "P": "AP", "L": "LR", "R": "LR"}

#: View → (perpendicular axis, rows, what is on top, columns, what is on the left), as radiologists look at a patient.
_VIEWS = {
    "axial": ("SI", "AP", "A", "LR", "R"),
    "coronal": ("AP", "SI", "S", "LR", "R"),
    "sagittal": ("LR", "SI", "S", "AP", "A"),
}


@dataclass(frozen=True)
class Plane:
    """One plane of a sample.

    Attributes:
        view: "axial", "coronal", "sagittal"; empty for a 2-D sample.
        image: (rows, columns), float32; a copy.
        masks: label → where it is, of the same shape. Regions are labels 1, 2, ... and may overlap.
        aspect: a pixel's height over its width.
    """

    view: str
    image: Image
    masks: Mapping[int, Mask]
    aspect: float = 1.0


def checked_orientation(orientation: str) -> str:
    """Three letters, the direction of each axis: R or L, A or P, S or I.

    Raises:
        UnusableError: (a ValueError) they do not.
    """
    if not isinstance(orientation, str) or sorted(_AXES.get(each, each) for each in orientation) != ["AP", "LR", "SI"]:
        raise UnusableError(
            f"orientation must name the direction of each of the three axes, by one of each of R or L, A or P, S or I (as "
            f"{NNUNET!r}, nnU-Net's, or 'RAS', NIfTI's), got {orientation!r}"
        )
    return orientation


def planes_of(
    image: Any,
    labels: Any = None,
    *,
    orientation: str = NNUNET,
    spacing: Sequence[float] | None = None,
    channel: int = 0,
) -> tuple[Plane, ...]:
    """The three planes in the middle of a volume, or a 2-D sample itself. Only these are read.

    Args:
        image: (C, X, Y) or (C, X, Y, Z).
        labels: (C, X, Y[, Z]): labels in the first channel; or, if they are bool, a region in each channel. Of a list (deep
            supervision) the first. What has another spatial shape than the image is left out.
        orientation: axis orientation of a volume; of a 2-D sample the first is shown downwards, the second to the right.
        spacing: lengths of a voxel's edges, one for each axis; None: they are equal.
        channel: which of the image's is shown.

    Raises:
        ValueError: no such channel, another number of axes, or no orientation.
    """
    checked_orientation(orientation)
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
        everything = (slice(None), slice(None))
        return (_plane("", image, labels, channel, everything, edges[0] / edges[1], lambda plane: plane),)
    axes = {_AXES[letter]: (number, letter) for number, letter in enumerate(orientation)}
    found = []
    for view, (perpendicular, rows, top, columns, left) in _VIEWS.items():
        through = axes[perpendicular][0]
        where: list[Any] = [slice(None)] * 3
        where[through] = shape[1 + through] // 2
        (row, down), (column, right) = axes[rows], axes[columns]

        def as_seen(
            plane: np.ndarray, turned: bool = column < row, up: bool = down == top, mirrored: bool = right == left
        ) -> np.ndarray:
            plane = plane.T if turned else plane
            return plane[:: -1 if up else 1, :: -1 if mirrored else 1]

        found.append(_plane(view, image, labels, channel, tuple(where), edges[row] / edges[column], as_seen))
    return tuple(found)


def _plane(view: str, image: Any, labels: Any, channel: int, where: Any, aspect: float, as_seen: Any) -> Plane:
    seen = as_seen(_array(image[channel][where]))
    step = -(-max(seen.shape) // _LONGEST)
    picture = np.array(seen[::step, ::step], np.float32)
    masks: dict[int, Mask] = {}
    if labels is not None and str(labels.dtype).endswith("bool"):
        masks = {n + 1: as_seen(_array(each[where]))[::step, ::step].copy() for n, each in enumerate(labels)}
    elif labels is not None:
        values = as_seen(_array(labels[0][where]))[::step, ::step]
        present = np.unique(values[np.isfinite(values)])
        if len(present) <= _MOST_LABELS:
            masks = {int(value): values == value for value in present if value != 0}
    return Plane(view, picture, {label: mask for label, mask in masks.items() if mask.any()}, aspect)


def _array(value: Any) -> np.ndarray:
    """Of a tensor, an array, or anything that becomes one."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
