"""A sample's arrays as a sheet: a column for each state of it, its planes one below another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detaug.pictures.palette import colour_of
from detaug.pictures.planes import planes_of
from detaug.pictures.rendering import rendered, window_of
from detaug.pictures.sheet import CELL, Cell, Sheet, SheetRow

#: Under which keys images and labels are looked for first.
IMAGES, LABELS = ("image", "data", "img"), ("segmentation", "seg", "target", "label", "mask")


def sheet_of(title: str, states: Sequence[tuple[str, Mapping[str, Any]]]) -> Sheet | None:
    """A sheet of one row; None: no state has an image.

    Args:
        title: above all.
        states: (name, arrays by key): the first channel of one of `IMAGES` (C, X, Y[, Z]; floating point) is shown,
            else that of the first array of such a kind, with labels from one of `LABELS`; of a batch
            of volumes the first sample.
    """
    names, cells, present = [], [], set()
    for name, arrays in states:
        image = image_in(arrays)
        if image is None:
            continue
        labels = next((_volume(arrays[key]) for key in LABELS if key in arrays), None)
        planes = planes_of(image, labels)
        window = window_of(planes)
        present |= {label for plane in planes for label in plane.masks}
        names.append(name)
        cells.append(Cell([rendered(plane, CELL, window) for plane in planes], [" × ".join(map(str, image.shape))]))
    if not cells:
        return None
    legend = {f"label {label}": colour_of(label) for label in sorted(present)[:7]}
    return Sheet(title, "each with its own window of grey values", names, [SheetRow("", cells)], legend)


def image_in(arrays: Mapping[str, Any]) -> Any:
    """The image among a sample's or batch's arrays, (C, X, Y[, Z]); None: there is none."""
    names = [*(name for name in IMAGES if name in arrays), *arrays]
    return next(
        (found for name in names if (found := _volume(arrays[name])) is not None and found.dtype.kind == "f"), None
    )


def _volume(value: Any) -> np.ndarray[Any, Any] | None:
    """(C, X, Y[, Z]) of such an array, or of the first sample of a batch (B, C, X, Y, Z)."""
    if isinstance(value, (list, tuple)):
        value = value[0] if value else None
    if not hasattr(value, "shape") or not hasattr(value, "__array__"):
        return None
    array = np.asarray(value)
    if array.ndim == 5:
        array = array[0]
    return array if array.ndim in (3, 4) and array.size else None
