"""A sample as three planes through its middle, with the outlines of its labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: Okabe and Ito's colours, which people with any kind of colour vision can tell apart.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#0072B2", "#D55E00", "#CC79A7")
_INCHES, _DPI = 2.6, 110


class NoMatplotlib(ImportError):
    """Pictures need matplotlib."""


@dataclass(frozen=True)
class View:
    """One row of a picture.

    Attributes:
        title: its caption.
        image: (C, X, Y) or (C, X, Y, Z); the first channel is shown.
        labels: of the same shape, integers; None: there are none.
    """

    title: str
    image: np.ndarray[Any, Any]
    labels: np.ndarray[Any, Any] | None = None


def draw_planes(views: Sequence[View], file: Path) -> None:
    """Draw rows of planes, one row below the other, into a PNG.

    Every row has its own grey values, from the 1st to the 99th percentile.

    Raises:
        NoMatplotlib: it is not installed.
        OSError: the file cannot be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise NoMatplotlib('pictures need matplotlib: pip install "detaug[plots]"') from None
    rows = [planes_of(view) for view in views]
    columns = max(len(row) for row in rows)
    figure = Figure((_INCHES * columns, (_INCHES + 0.25) * len(rows)), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for number, (view, row) in enumerate(zip(views, rows, strict=True)):
        low, high = np.percentile(view.image[0], (1, 99)) if view.image[0].size else (0, 1)
        for axis, (name, plane, outlined) in zip(axes[number], row, strict=False):
            axis.imshow(
                plane.T, cmap="gray", vmin=low, vmax=max(high, low + 1e-6), origin="lower", interpolation="nearest"
            )
            if outlined is not None:
                for label in [each for each in np.unique(outlined) if each > 0]:
                    colour = PALETTE[(int(label) - 1) % len(PALETTE)]
                    axis.contour((outlined == label).T, levels=[0.5], colors=[colour], linewidths=0.9)
            axis.set_title(f"{view.title}, {name} {plane.shape}", fontsize=7)
        for axis in axes[number]:
            axis.set_axis_off()
    figure.savefig(file, format="png")


def planes_of(view: View) -> list[tuple[str, Any, Any]]:
    """(name, image, labels) of the planes through the middle: three of a volume, one of an image."""
    image = np.asarray(view.image[0], dtype=np.float32)
    labels = None if view.labels is None else np.asarray(view.labels[0])
    if labels is not None and labels.shape != image.shape:
        labels = None
    if image.ndim == 2:
        return [("", image, labels)]
    found = []
    for axis, name in enumerate(("first axis", "second axis", "third axis")):
        middle = image.shape[axis] // 2
        found.append(
            (name, image.take(middle, axis), None if labels is None else labels.take(middle, axis)),
        )
    return found


def view_of(title: str, arrays: dict[str, Any]) -> View | None:
    """A sample's arrays, or the first sample of a batch's, as a row; None: there is no image in them.

    Looked for are ``image`` or ``data`` (C, X, Y[, Z]; floating point), else the first array of such a kind, and labels
    under ``segmentation``, ``seg`` or ``target``.
    """
    names = [*(name for name in ("image", "data") if name in arrays), *arrays]
    image = next(
        (found for name in names if (found := _volume(arrays[name])) is not None and found.dtype.kind == "f"), None
    )
    if image is None:
        return None
    labels = next((_volume(arrays[name]) for name in ("segmentation", "seg", "target") if name in arrays), None)
    return View(title, image, labels)


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
