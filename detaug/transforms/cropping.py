"""Cropping, with padding where the crop reaches beyond the array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, Params, Shapes, Transform
from detaug.transforms.building.checks import finite, representable, spatial_size
from detaug.transforms.building.gate import VOXEL_KEYS, each_axis, takes, whole_number
from detaug.transforms.building.grids import GRID, grid_among
from detaug.transforms.building.workspace import Workspace, in_space, spatial_shape


def crop_sample(
    workspace: Workspace,
    center: Sequence[int],
    size: tuple[int, ...],
    value: float,
    label: float,
) -> None:
    """Crop all arrays of a workspace to `size` voxels from ``center - size // 2`` on.

    Args:
        workspace: the sample.
        center: a voxel, also outside the arrays.
        size: in voxels, one number for each axis.
        value: the value of images outside their array.
        label: the label of the segmentation outside its array.
    """
    space = spatial_shape(workspace.shapes())
    # If a size is even, the voxel after the middle counts as the centre.
    starts = [middle - extent // 2 for middle, extent in zip(center, size, strict=True)]
    # The crop is the whole array, which need not be copied.
    if size == space and not any(starts):
        return
    box = _box_within(starts, size, space)
    for key in VOXEL_KEYS:
        if key not in workspace:
            continue
        volume = workspace.lazy(key)
        starts_in_array = starts
        if volume is not None:
            # The array that is read begins at the box, not at the volume's first voxel.
            workspace.put(key, volume.read(box.starts, box.stops))
            pairs = zip(starts, box.starts, strict=True)
            starts_in_array = [start - read_start for start, read_start in pairs]
        outside = label if key == "segmentation" else value
        workspace.put_reshaped(key, _cropped(workspace[key], starts_in_array, size, outside))


class _Box(NamedTuple):
    """The voxels from `starts` to `stops` (excluded), one number for each axis."""

    starts: list[int]
    stops: list[int]


def _box_within(starts: Sequence[int], size: Sequence[int], space: Sequence[int]) -> _Box:
    """Return the part of a crop that lies within a volume.

    Of a crop beyond the volume, it is the border's nearest voxels: a volume cannot read no voxels.
    """
    box = _Box([], [])
    for start, extent, length in zip(starts, size, space, strict=True):
        first = min(max(0, start), length - 1)
        last = max(first, start + extent - 1)
        box.starts.append(first)
        box.stops.append(min(last + 1, length))
    return box


def _cropped(
    array: np.ndarray, starts: Sequence[int], size: tuple[int, ...], value: float
) -> np.ndarray:
    """Return the voxels of a crop of every channel; a view of the array if nothing is padded.

    Args:
        array: (C, X, Y[, Z]).
        starts: the crop's first voxel, which may lie outside the array.
        size: in voxels, one number for each axis.
        value: the value of voxels outside the array.
    """
    # The part that crop and array have in common, as indices of the array and of the crop.
    in_array = [slice(None)]
    in_crop = [slice(None)]
    for start, extent, length in zip(starts, size, array.shape[1:], strict=True):
        low = max(0, start)
        # A crop beside the array has an empty part of it, not a negative one.
        high = max(low, min(length, start + extent))
        in_array.append(slice(low, high))
        in_crop.append(slice(low - start, high - start))
    common = array[tuple(in_array)]
    # A view suffices: `put_reshaped` sees to it that no caller's array is written to.
    if common.shape[1:] == size:
        return common
    padded = np.full((len(array), *size), value, array.dtype)
    padded[tuple(in_crop)] = common
    return padded


def check_padding(workspace: Workspace, value: float) -> None:
    """Raise a ValueError if the segmentation cannot hold the label for padding, needed or not."""
    if "segmentation" not in workspace:
        return
    for dtype in workspace.label_dtypes():
        representable("the padding value", value, dtype)


class _Crop(Transform):
    """The common part of crops; the params hold the crop's centre."""

    def __init__(
        self,
        crop_size: Sequence[int],
        padding_value_image: float = 0.0,
        padding_value_seg: float = 0.0,
    ) -> None:
        self.crop_size = spatial_size("crop_size", crop_size)
        self.spatial_dims = len(self.crop_size)
        self.padding_value_image = finite("padding_value_image", padding_value_image)
        self.padding_value_seg = finite("padding_value_seg", padding_value_seg)

    @takes(center=each_axis(whole_number(-(10**9), 10**9)))
    def change(self, workspace: Workspace, params: Params) -> None:
        check_padding(workspace, self.padding_value_seg)
        # The gate accepts whole numbers that JSON has made floats.
        center = [int(c) for c in params["center"]]
        value = self.padding_value_image
        crop_sample(workspace, center, self.crop_size, value, self.padding_value_seg)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        announced = in_space(shapes, self.crop_size)
        grid = grid_among(shapes)
        if grid is not None:
            pairs = zip(params["center"], self.crop_size, strict=True)
            first = [middle - extent // 2 for middle, extent in pairs]
            announced[GRID] = grid.cropped(first)
        return announced


class CenterCrop(_Crop):
    """A crop around the middle, voxel ``n // 2`` of an axis of n voxels.

    It crops ``image``, ``regression_target`` and ``segmentation``. Without padding the result is a
    view of the input.

    Args:
        crop_size: voxels along each axis.
        padding_value_image: the value of images outside the array.
        padding_value_seg: the label of the segmentation outside the array.

    Params: ``{"center": [voxels]}``.

    Raises:
        ValueError: a size that does not fit the sample's dimensions, or a padding value that the
            segmentation's dtype does not hold.
    """

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        space = spatial_shape(shapes, crop_size=self.crop_size)
        return {"center": [length // 2 for length in space]}


class RandomCrop(_Crop):
    """A crop at a random position, uniformly among those at which the crop is within the array.

    Along an axis that is shorter than the crop, the array is in the middle of its padding.

    Arguments, errors and params are those of `CenterCrop`.
    """

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        space = spatial_shape(shapes, crop_size=self.crop_size)
        center = []
        for length, size in zip(space, self.crop_size, strict=True):
            if size >= length:
                # Along this axis there is only one position, so that nothing is drawn.
                center.append(length // 2)
            else:
                # The first voxel is drawn, but params hold the centre.
                center.append(draws.integer(rng, length - size + 1) + size // 2)
        return {"center": center}
