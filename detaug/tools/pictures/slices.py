"""The planes in the middle of a volume, drawn as grey values with outlines of labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.errors import UnusableError

Image = NDArray[np.float32]
Mask = NDArray[np.bool_]
Window = tuple[float, float]

#: The number of labels whose outlines are drawn; an array with more of them is no segmentation.
_MOST_LABELS = 256

#: Okabe and Ito (2008), Color Universal Design, without black and in an order that begins with what
#: stands out from grey.
OKABE_ITO = ("#E69F00", "#56B4E9", "#009E73", "#F0E442", "#CC79A7", "#D55E00", "#0072B2")

#: The colour of labels below 0, which lie outside of a case (nnU-Net's -1).
OUTSIDE = "#999999"

#: The colour of voxels that are NaN or infinite.
NOT_FINITE = "#CC79A7"

#: Percentiles of an image's grey values, from which its window is made.
_BLACK = 0.5
_WHITE = 99.5
#: What a window adds to these, as shares of its width: room for brighter and darker images.
_ROOM_BELOW = 0.05
_ROOM_ABOVE = 0.25


@dataclass(frozen=True)
class Plane:
    """One plane of a sample.

    Attributes:
        image: (rows, columns), a copy.
        masks: label → where it is. Regions are labels 1, 2, ... and may overlap.
        aspect: a pixel's height over its width.
    """

    image: Image
    masks: Mapping[int, Mask]
    aspect: float = 1.0


def planes_of(
    image: Any, labels: Any = None, *, spacing: Sequence[float] | None = None, channel: int = 0
) -> tuple[Plane, ...]:
    """Return the three planes in the middle of a volume, or a 2-D sample itself.

    They are across the volume's first, second and third axis; only these are read. A volume's first
    axis, nnU-Net's from the feet to the head, runs upwards; all others run downwards or to the
    right.

    Args:
        image: (C, X, Y) or (C, X, Y, Z).
        labels: (C, X, Y[, Z]): labels in the first channel; or, if they are bool, a region in each
            channel. What has another spatial shape than the image is left out.
        spacing: lengths of a voxel's edges, one for each axis; None: they are equal.
        channel: which of the image's is shown.

    Raises:
        UnusableError: there is no such channel.
    """
    shape = tuple(image.shape)
    if not 0 <= channel < shape[0]:
        raise UnusableError(
            f"there is no channel {channel}: the image has {shape[0]}, from 0 to {shape[0] - 1}"
        )
    if labels is not None and tuple(labels.shape[1:]) != shape[1:]:
        labels = None
    edges = spacing or (1.0,) * (len(shape) - 1)
    if len(shape) == 3:
        return (_plane(image[channel], labels, (slice(None), slice(None)), edges[0] / edges[1]),)
    planes = []
    for across in range(3):
        index: list[Any] = [slice(None)] * 3
        index[across] = shape[1 + across] // 2
        row, column = (axis for axis in range(3) if axis != across)
        aspect = edges[row] / edges[column]
        plane = _plane(image[channel], labels, tuple(index), aspect, upwards=row == 0)
        planes.append(plane)
    return tuple(planes)


def _plane(
    image: Any, labels: Any, index: tuple[Any, ...], aspect: float, upwards: bool = False
) -> Plane:
    """Return one plane of an image and its labels; `upwards`: its first axis runs upwards."""

    def cut(values: Any) -> np.ndarray:
        plane = np.asarray(values[index])
        if upwards:
            return plane[::-1]
        return plane

    masks: dict[int, Mask] = {}
    if labels is not None and str(labels.dtype).endswith("bool"):
        for number, region in enumerate(labels, start=1):
            masks[number] = cut(region).copy()
    elif labels is not None:
        values = cut(labels[0])
        # Labels from another library may be floats with NaN in them, which is no label.
        present = np.unique(values[np.isfinite(values)])
        if len(present) <= _MOST_LABELS:
            masks = {int(value): values == value for value in present if value != 0}
    # The legend must not name regions that lie outside this plane.
    visible = {label: mask for label, mask in masks.items() if mask.any()}
    # A copy, because the next transform may write into the same image.
    return Plane(np.array(cut(image), np.float32), visible, aspect)


def colour_of(label: int) -> str:
    """Return a label's colour; after seven labels they begin again."""
    if label < 0:
        return OUTSIDE
    return OKABE_ITO[(label - 1) % len(OKABE_ITO)]


def window_of(planes: Sequence[Plane]) -> Window:
    """Return the grey values that become black and white, from finite pixels.

    The window is wider than the image's own values, so that a brighter image is not all white.
    """
    values = np.concatenate([plane.image[np.isfinite(plane.image)] for plane in planes])
    if values.size == 0:
        return 0.0, 1.0
    # Percentiles, because a few bright voxels would make everything else dark.
    low, high = map(float, np.percentile(values, (_BLACK, _WHITE)))
    # Equal if most pixels have one value, as in a mask: then all values count.
    if low == high:
        low = float(values.min())
        high = float(values.max())
    width = high - low
    if width > 0:
        return low - _ROOM_BELOW * width, high + _ROOM_ABOVE * width
    return low - 0.5, low + 0.5


def draw(axes: Any, planes: Sequence[Plane], window: Window) -> None:
    """Draw planes one below another, with the outlines of their labels.

    Voxels that are NaN or infinite are coloured.

    Args:
        axes: of a matplotlib figure.
        planes: of one sample.
        window: the values that become black and white.
    """
    from matplotlib import colormaps

    # Without a colour, NaN would be transparent and look like background.
    grey = colormaps["gray"].with_extremes(bad=NOT_FINITE)
    black, white = window
    top = 0.0
    for plane in planes:
        rows, columns = plane.image.shape
        # One axes holds all planes of a sample: each lies below the one before, in data units.
        bottom = top - rows * plane.aspect
        extent = (0, columns, bottom, top)
        image = np.ma.masked_invalid(plane.image)
        axes.imshow(image, grey, vmin=black, vmax=white, extent=extent, interpolation="nearest")
        for label, mask in plane.masks.items():
            if min(mask.shape) == 1 or mask.all():
                # The picture's own edge is no border.
                continue
            axes.contour(
                mask.astype(np.float32),
                (0.5,),
                colors=colour_of(label),
                linewidths=1.2,
                extent=extent,
                origin="upper",
            )
        top = bottom - 2
    width = max(plane.image.shape[1] for plane in planes)
    axes.set(xlim=(0, width), ylim=(top, 0), xticks=[], yticks=[])
    axes.spines[:].set_visible(False)
