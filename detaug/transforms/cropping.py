"""Cropping, with padding where the crop reaches beyond the array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, Params, Shapes, Transform
from detaug.transforms.building.checks import finite, one_of, representable, spatial_size
from detaug.transforms.building.gate import VOXEL_KEYS, each_axis, takes, whole_number
from detaug.transforms.building.workspace import Workspace, in_space, spatial_shape

PAD_MODES = ("constant", "reflect", "replicate")


def crop_sample(
    workspace: Workspace,
    center: Sequence[int],
    size: tuple[int, ...],
    image: tuple[str, float],
    labels: tuple[str, float],
) -> None:
    """Crop all that a workspace holds to `size` voxels from ``center - size // 2`` on. ``image`` and ``labels`` are pad modes
    and values."""
    space = spatial_shape(workspace.shapes())
    starts = [c - n // 2 for c, n in zip(center, size, strict=True)]
    if size == space and not any(starts):
        return
    # of a crop beyond a volume at least the border's nearest voxels, which continue outwards as it does
    lows = [min(max(0, start), n - 1) for start, n in zip(starts, space, strict=True)]
    highs = [
        min(max(low, s + w - 1) + 1, n)
        for low, s, w, n in zip(lows, starts, size, space, strict=True)
    ]
    for key in VOXEL_KEYS:
        if key in workspace:
            pad_mode, value = labels if key == "segmentation" else image
            volume, here = workspace.lazy(key), starts
            if volume is not None and pad_mode != "reflect":
                workspace.put(key, volume.read(lows, highs))
                here = [start - low for start, low in zip(starts, lows, strict=True)]
            workspace.put_reshaped(key, _cropped(workspace[key], here, size, pad_mode, value))


def _cropped(
    array: np.ndarray, starts: Sequence[int], size: tuple[int, ...], pad_mode: str, value: float
) -> np.ndarray:
    """Those voxels of every channel; a view where nothing is padded."""
    # what the crop and the array have in common, in coordinates of the array
    lows = [max(0, start) for start in starts]
    highs = [
        max(low, min(n, s + w))
        for low, n, s, w in zip(lows, array.shape[1:], starts, size, strict=True)
    ]
    common = array[(slice(None), *map(slice, lows, highs))]
    if common.shape[1:] == size:
        return common
    if pad_mode == "constant":
        padded = np.full((len(array), *size), value, array.dtype)
        inside = [
            slice(low - s, high - s) for low, high, s in zip(lows, highs, starts, strict=True)
        ]
        padded[(slice(None), *inside)] = common
        return padded
    for axis, (start, width) in enumerate(zip(starts, size, strict=True), start=1):
        array = array.take(_extended(start, width, array.shape[axis], pad_mode), axis)
    return array


def check_padding(workspace: Workspace, value: float) -> None:
    """A ValueError where the segmentation cannot hold the label that it is padded with, whether or not it is padded."""
    if "segmentation" in workspace:
        representable(
            "the padding value",
            value,
            (workspace.lazy("segmentation") or workspace["segmentation"]).dtype,
        )


class _Crop(Transform):
    """What crops have in common; the params say where."""

    def __init__(
        self,
        crop_size: Sequence[int],
        pad_mode: str = "constant",
        padding_value_image: float = 0.0,
        padding_value_seg: float = 0.0,
    ) -> None:
        self.crop_size = spatial_size("crop_size", crop_size)
        self.spatial_dims = len(self.crop_size)
        self.pad_mode = one_of("pad_mode", pad_mode, PAD_MODES)
        self.padding_value_image = finite("padding_value_image", padding_value_image)
        self.padding_value_seg = finite("padding_value_seg", padding_value_seg)

    @takes(center=each_axis(whole_number(-(10**9), 10**9)))
    def change(self, workspace: Workspace, params: Params) -> None:
        if self.pad_mode == "constant":
            check_padding(workspace, self.padding_value_seg)
        image, labels = (
            (self.pad_mode, value) for value in (self.padding_value_image, self.padding_value_seg)
        )
        crop_sample(workspace, [int(c) for c in params["center"]], self.crop_size, image, labels)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        return in_space(shapes, self.crop_size)


class CenterCrop(_Crop):
    """Crops around the middle: around voxel ``n // 2`` of an axis of n.

    Applies to ``image``, ``regression_target`` and ``segmentation``. Without padding the result is a view of the input.

    Args:
        crop_size: voxels along each axis.
        pad_mode: what there is outside the array. ``constant``: the value; ``replicate``: the nearest voxel of the
            border; ``reflect``: the array mirrored at the centres of its border voxels, again and again.
        padding_value_image, padding_value_seg: for ``constant``.

    Params: ``{"center": [voxels]}``.

    Raises:
        ValueError: a size that does not fit the sample's dimensions, or a padding value that the segmentation's dtype
            does not have.
    """

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        return {"center": [n // 2 for n in spatial_shape(shapes, crop_size=self.crop_size)]}


class RandomCrop(_Crop):
    """Crops at a random place: each at which the crop is within the array is as likely as the others.

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


def _extended(start: int, size: int, length: int, pad_mode: str) -> np.ndarray:
    """For voxels start ... start + size - 1, the voxels of an axis of that length that replace them."""
    wanted = np.arange(start, start + size, dtype=np.int64)
    if pad_mode == "replicate" or length == 1:
        return np.clip(wanted, 0, length - 1)
    period = 2 * (length - 1)
    wanted = wanted % period
    return np.minimum(wanted, period - wanted)
