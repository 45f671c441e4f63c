"""Random regions that are overwritten, or everything outside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.kernels.statistics import least_and_largest
from detaug.kernels.threefry import fill_evenly, key_words
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, Shapes
from detaug.transforms.building.checks import integer, random_scalar
from detaug.transforms.building.gate import KEY, ParamContext, many, needed_if, takes
from detaug.transforms.building.per_channel import flat_planes
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.rectangles import CORNERS, Corners, placed, within

Size = int | Sequence[int]


def _is_drawn(context: ParamContext) -> bool:
    """Return whether the voxels of the regions are drawn, each its own."""
    return not isinstance(context.transform.fill_value, float)


class CoarseDropout(ImageTransform):
    """Random regions (boxes in 3-D) that are overwritten, or the only ones that are not.

    The regions are the same in all channels; they may overlap. Arguments and defaults are those of
    MONAI's ``RandCoarseDropout`` (after DeVries and Taylor, "Improved regularization of
    convolutional neural networks with cutout", 2017), without its ``prob``: use `RandomApply`.
    `BlankRectangle` has other regions in each channel.

    Args:
        holes: the number of regions, at least 1.
        spatial_size: voxels along each axis, or one number for all; -1 for the image's size. Larger
            sizes are reduced to the image's.
        dropout_holes: True: the regions are overwritten. False: everything else is.
        fill_value: a number; a range, from which each voxel is drawn uniformly; or None for the
            range from the image's least value to its largest, over all channels.
        max_holes: draw the number of regions uniformly from ``holes`` to this one, included.
        max_spatial_size: draw each region's size along each axis uniformly from ``spatial_size`` to
            this one, included.

    Params: ``{"holes": [(lower, upper), ...], "key": 64 bits}``; corners are lists of voxel
    indices, the upper ones excluded. There is a key only if voxels are drawn. Those of channel c
    and region h are stream ``c * regions + h`` under it (`detaug.kernels.threefry`); without
    ``dropout_holes``, those of channel c are stream c.

    Raises:
        ValueError: from `sample`, sizes for another number of axes, or a least size above the
            largest.
    """

    def __init__(
        self,
        holes: int,
        spatial_size: Size,
        dropout_holes: bool = True,
        fill_value: tuple[float, float] | float | None = None,
        max_holes: int | None = None,
        max_spatial_size: Size | None = None,
    ) -> None:
        self.holes = integer("holes", holes, 1)
        self.max_holes = None if max_holes is None else integer("max_holes", max_holes, self.holes)
        self.spatial_size = _checked_size("spatial_size", spatial_size)
        self.max_spatial_size = None
        if max_spatial_size is not None:
            self.max_spatial_size = _checked_size("max_spatial_size", max_spatial_size)
        self.dropout_holes = dropout_holes
        if callable(fill_value):
            raise TypeError(
                f"fill_value must be a number, a range (low, high) or None, got {fill_value!r}"
            )
        self.fill_value: Any = None
        if fill_value is not None:
            self.fill_value = random_scalar("fill_value", fill_value)

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        params: Params = {"holes": self._draw_holes(rng, shapes["image"][1:])}
        if not isinstance(self.fill_value, float):
            params["key"] = draws.key(rng)
        return params

    def _draw_holes(self, rng: np.random.Generator, space: Sequence[int]) -> list[Corners]:
        least = _size_in("spatial_size", self.spatial_size, space)
        largest = least
        if self.max_spatial_size is not None:
            largest = _size_in("max_spatial_size", self.max_spatial_size, space)
        if any(low > high for low, high in zip(least, largest, strict=True)):
            raise ValueError(
                "spatial_size must not be greater than max_spatial_size, "
                f"got {least} and {largest} voxels in an image of "
                f"{list(space)}"
            )
        max_holes = self.holes if self.max_holes is None else self.max_holes
        holes = []
        for _ in range(draws.integer_between(rng, self.holes, max_holes)):
            size = []
            for low, high, length in zip(least, largest, space, strict=True):
                size.append(min(draws.integer_between(rng, low, high), length))
            holes.append(placed(rng, size, space))
        return holes

    @takes(holes=many(CORNERS), key=needed_if(_is_drawn, KEY))
    def change(self, workspace: Workspace, params: Params) -> None:
        holes = params["holes"]
        key = params.get("key")
        source = workspace.image()
        low, high = self._range(source)
        if self.dropout_holes:
            for c, channel in enumerate(workspace.writable("image")):
                for h, corners in enumerate(holes):
                    _fill(channel[within(corners)], low, high, key, c * len(holes) + h)
            return
        image = np.empty_like(source)
        for c, channel in enumerate(image):
            _fill(channel, low, high, key, c)
            for corners in holes:
                channel[within(corners)] = source[c][within(corners)]
        workspace.put("image", image)

    def _range(self, image: np.ndarray) -> tuple[float, float]:
        """Return the least and the largest number to fill with."""
        if isinstance(self.fill_value, tuple):
            return self.fill_value
        if self.fill_value is not None:
            return self.fill_value, self.fill_value
        limits = [least_and_largest(flat_planes(channel)) for channel in image]
        return min(low for low, _ in limits), max(high for _, high in limits)

    kernels = (least_and_largest, fill_evenly)


def _fill(region: np.ndarray, low: float, high: float, key: int | None, stream: int) -> None:
    """Fill a region with numbers of a stream under the key, from low to high."""
    if key is None or low == high:
        region[...] = np.float32(low)
        return
    values = np.empty(region.size, np.float32)
    fill_evenly(values, np.float32(low), np.float32(high - low), *key_words(key), np.uint32(stream))
    region[...] = values.reshape(region.shape)


def _checked_size(name: str, wanted: Any) -> int | tuple[int, ...]:
    """Return the voxels along each axis, or one number for all axes; -1 is the image's size."""
    is_one = not isinstance(wanted, (tuple, list))
    sizes = tuple(integer(name, size, -1) for size in ((wanted,) if is_one else wanted))
    if 0 in sizes:
        raise ValueError(f"{name} must be positive, or -1 for the image's size, got {wanted!r}")
    return sizes[0] if is_one else sizes


def _size_in(name: str, wanted: int | tuple[int, ...], space: Sequence[int]) -> list[int]:
    """Return the voxels along each axis of an image of this spatial shape."""
    sizes = wanted if isinstance(wanted, tuple) else (wanted,) * len(space)
    if len(sizes) != len(space):
        raise ValueError(f"{name} is for {len(sizes)} axes, but the image has {len(space)}")
    return [length if size == -1 else size for size, length in zip(sizes, space, strict=True)]
