"""Cropping, with padding where the crop reaches beyond the array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

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
    """Crop all that a workspace holds to `size` voxels from ``center - size // 2`` on.

    Args:
        value, label: what lies outside of images, and of the segmentation.
    """
    space = spatial_shape(workspace.shapes())
    starts = [c - n // 2 for c, n in zip(center, size, strict=True)]
    if size == space and not any(starts):
        return
    # of a crop beyond a volume at least the border's nearest voxels, for no volume is read without
    # one
    lows = [min(max(0, start), n - 1) for start, n in zip(starts, space, strict=True)]
    highs = [
        min(max(low, s + w - 1) + 1, n)
        for low, s, w, n in zip(lows, starts, size, space, strict=True)
    ]
    for key in VOXEL_KEYS:
        if key in workspace:
            volume, here = workspace.lazy(key), starts
            if volume is not None:
                workspace.put(key, volume.read(lows, highs))
                here = [start - low for start, low in zip(starts, lows, strict=True)]
            outside = label if key == "segmentation" else value
            workspace.put_reshaped(key, _cropped(workspace[key], here, size, outside))


def _cropped(
    array: np.ndarray, starts: Sequence[int], size: tuple[int, ...], value: float
) -> np.ndarray:
    """Return those voxels of every channel; a view where nothing is padded."""
    # what the crop and the array have in common, in coordinates of the array
    lows = [max(0, start) for start in starts]
    highs = [
        max(low, min(n, s + w))
        for low, n, s, w in zip(lows, array.shape[1:], starts, size, strict=True)
    ]
    common = array[(slice(None), *map(slice, lows, highs))]
    if common.shape[1:] == size:
        return common
    padded = np.full((len(array), *size), value, array.dtype)
    inside = [slice(low - s, high - s) for low, high, s in zip(lows, highs, starts, strict=True)]
    padded[(slice(None), *inside)] = common
    return padded


def check_padding(workspace: Workspace, value: float) -> None:
    """A ValueError where the segmentation cannot hold the label that it is padded with, whether or
    not it is padded.
    """
    if "segmentation" not in workspace:
        return
    for dtype in workspace.label_dtypes():
        representable("the padding value", value, dtype)


class _Crop(Transform):
    """What crops have in common; the params say where."""

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
        center = [int(c) for c in params["center"]]
        values = (self.padding_value_image, self.padding_value_seg)
        crop_sample(workspace, center, self.crop_size, *values)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        announced = in_space(shapes, self.crop_size)
        grid = grid_among(shapes)
        if grid is not None:
            first = [c - n // 2 for c, n in zip(params["center"], self.crop_size, strict=True)]
            announced[GRID] = grid.cropped(first)
        return announced


class CenterCrop(_Crop):
    """Crops around the middle: around voxel ``n // 2`` of an axis of n.

    Applies to ``image``, ``regression_target`` and ``segmentation``. Without padding the result is
    a view of the input.

    Args:
        crop_size: voxels along each axis.
        padding_value_image, padding_value_seg: what there is outside the array.

    Params: ``{"center": [voxels]}``.

    Raises:
        ValueError: a size that does not fit the sample's dimensions, or a padding value that the
            segmentation's dtype does not have.
    """

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        return {"center": [n // 2 for n in spatial_shape(shapes, crop_size=self.crop_size)]}


class RandomCrop(_Crop):
    """Crops at a random place: each at which the crop is within the array is as likely as the
    others.

    Along an axis that is shorter than the crop, the array is in the middle of its padding.

    Arguments, errors and params are those of `CenterCrop`.
    """

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        return {
            "center": [
                n // 2 if size >= n else draws.integer(rng, n - size + 1) + size // 2
                for n, size in zip(
                    spatial_shape(shapes, crop_size=self.crop_size), self.crop_size, strict=True
                )
            ]
        }
