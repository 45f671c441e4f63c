"""Labels: removed, joined to regions, used as a mask, copied at lower resolutions."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from detaug.kernels.voxels import pick, picked, replace_label
from detaug.transforms.building.base import Params, Shapes, Transform
from detaug.transforms.building.checks import (
    UNSIGNED,
    argument,
    as_list,
    channels,
    finite,
    representable,
)
from detaug.transforms.building.gate import many, number, takes
from detaug.transforms.building.workspace import Workspace


class _LabelTransform(Transform):
    """A transform of ``segmentation`` alone, without draws; it does nothing without one."""

    needs = "segmentation"
    moves_voxels = False


class RemoveLabel(_LabelTransform):
    """Another label for the voxels of one label.

    Args:
        label_value: the label to remove; no voxel has one that the segmentation's dtype cannot
            hold.
        set_to: the label that replaces it.
        segmentation_channels: one or several channels. None: all.

    Params: ``{}``.

    Raises:
        IndexError: a channel that the segmentation does not have.
        ValueError: ``set_to`` is no value of the segmentation's dtype.
    """

    def __init__(
        self,
        label_value: int,
        set_to: int,
        segmentation_channels: int | Sequence[int] | None = None,
    ) -> None:
        finite("label_value", label_value)
        finite("set_to", set_to)
        self.label_value = label_value
        self.set_to = set_to
        self.segmentation_channels = None
        if segmentation_channels is not None:
            self.segmentation_channels = as_list(segmentation_channels)

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        labels = workspace["segmentation"]
        chosen = list(range(len(labels)))
        if self.segmentation_channels is not None:
            chosen = channels("segmentation_channels", self.segmentation_channels, len(labels))
        # Checked even if no voxel has the label: the error must not wait for a rare sample.
        for dtype in workspace.label_dtypes():
            representable("set_to", self.set_to, dtype)
        before, after = np.array([self.label_value, self.set_to]).astype(labels.dtype)
        if before != self.label_value or before == after or not chosen:
            # No voxel can have the label, or none would change.
            return
        labels = workspace.writable("segmentation")
        # Integers are compared as bits; floats are not, because 0 and -0 are equal.
        kind = labels.dtype
        if kind not in (np.float32, np.float64):
            kind = UNSIGNED[labels.itemsize]
        for channel in chosen:
            voxels = labels[channel].reshape(-1).view(kind)
            replace_label(voxels, before.view(kind), after.view(kind))

    kernels = (replace_label,)


class ConvertSegmentationToRegions(_LabelTransform):
    """One boolean channel per region instead of the segmentation.

    Args:
        regions: one or several labels each; a voxel may belong to more than one region.
        channel_in_seg: the channel that is read.

    Params: ``{}``. The result is (regions, *space), bool.

    Raises:
        IndexError: a channel that the segmentation does not have.
    """

    def __init__(self, regions: Sequence[int | Sequence[int]], channel_in_seg: int = 0) -> None:
        self.regions = [as_list(region) for region in regions]
        argument("regions", self.regions, many(many(number()), least=1))
        self.channel_in_seg = channel_in_seg

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        labels = workspace["segmentation"]
        (channel,) = channels("channel_in_seg", [self.channel_in_seg], len(labels))
        # Masks are written into one array, because stacking them would copy each.
        result = np.zeros((len(self.regions), *labels.shape[1:]), dtype=bool)
        for region, mask in zip(self.regions, result, strict=True):
            # Not `np.isin`, which sorts all labels of the array.
            for label in region:
                np.logical_or(mask, labels[channel] == label, out=mask)
        workspace.put("segmentation", result)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        if shapes.get("segmentation") is None:
            return dict(shapes)
        return {**shapes, "segmentation": (len(self.regions), *shapes["segmentation"][1:])}


class MaskImage(Transform):
    """Image voxels set to a value where a channel of the segmentation is negative.

    nnU-Net marks voxels outside of its mask so.

    Args:
        apply_to_channels: channels of the image.
        channel_idx_in_seg: the channel of the segmentation.
        set_outside_to: the value.

    Params: ``{}``.

    Raises:
        IndexError: a channel that the image or the segmentation does not have.
        ValueError: there is no image or no segmentation, or they differ in shape.
    """

    moves_voxels = False

    def __init__(
        self,
        apply_to_channels: Sequence[int],
        channel_idx_in_seg: int = 0,
        set_outside_to: float = 0,
    ) -> None:
        self.apply_to_channels = list(apply_to_channels)
        self.channel_idx_in_seg = channel_idx_in_seg
        self.set_outside_to = finite("set_outside_to", set_outside_to)

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        if not self.apply_to_channels:
            return
        labels = labels_of_image(workspace, "MaskImage")
        (channel,) = channels("channel_idx_in_seg", [self.channel_idx_in_seg], len(labels))
        masked = set(channels("apply_to_channels", self.apply_to_channels, len(workspace["image"])))
        outside = labels[channel] < 0
        # Most samples lie within the mask, and their image need not be copied.
        if not outside.any():
            return
        for image_channel in masked:
            voxels = workspace.writable("image")[image_channel]
            np.copyto(voxels, np.float32(self.set_outside_to), where=outside)


class DownsampleSegForDS(_LabelTransform):
    """A list of copies of the segmentation for deep supervision, one per scale.

    Args:
        ds_scales: for each copy a factor, or one per spatial axis: an axis of n voxels becomes one
            of ``round(n * factor)``. With 1 along every axis the copy is the segmentation itself.

    Voxel i of an axis of m voxels, made from n, is voxel ``floor((i + 1/2) * n / m)``: torch's
    ``nearest-exact``, with its rounding to float32.

    Params: ``{}``.

    Raises:
        ValueError: a number of factors that does not fit, or an axis that would be empty.
    """

    def __init__(self, ds_scales: Sequence[float | Sequence[float]]) -> None:
        self.ds_scales: list[Any] = []
        self.spatial_dims = None
        for scale in ds_scales:
            for factor in as_list(scale):
                argument("ds_scales", factor, number(above=0))
            if not isinstance(scale, (tuple, list, np.ndarray)):
                self.ds_scales.append(scale)
                continue
            # Tuples are hashable, which the cache of `_sizes_of` needs.
            self.ds_scales.append(tuple(scale))
            if self.spatial_dims is None:
                self.spatial_dims = len(scale)

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        # The kernel takes C-contiguous arrays only, no lazy volumes and no mirrored views.
        full = workspace.contiguous("segmentation")
        levels = []
        space = full.shape[1:]
        for size in _sizes_of(tuple(self.ds_scales), space):
            if size is None:
                levels.append(full)
            else:
                levels.append(picked(full, list(map(nearest, space, size))))
        # The full resolution may be the caller's array, and one level may stand in the list twice.
        workspace.put("segmentation", levels, owned=False)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        if shapes.get("segmentation") is None:
            return dict(shapes)
        count, *space = shapes["segmentation"]
        sizes = _sizes_of(tuple(self.ds_scales), tuple(space))
        return {**shapes, "segmentation": [(count, *(size or space)) for size in sizes]}

    kernels = (pick,)


# Cached because every sample needs it three times, and it takes as long as copying a plane.
@lru_cache(64)
def _sizes_of(
    scales: tuple[float | tuple[float, ...], ...], space: tuple[int, ...]
) -> list[tuple[int, ...] | None]:
    """Return the spatial shape of each copy, None for the segmentation itself."""
    sizes: list[tuple[int, ...] | None] = []
    for scale in scales:
        factors: tuple[Any, ...] = (scale,) * len(space)
        if isinstance(scale, tuple):
            factors = scale
        if len(factors) != len(space):
            raise ValueError(f"ds_scales has {scale} for a segmentation of spatial shape {space}")
        # Rounded as nnU-Net does, because the network's outputs have that size.
        size = tuple(round(n * factor) for n, factor in zip(space, factors, strict=True))
        if 0 in size:
            raise ValueError(
                f"ds_scales {scale} leave nothing of a segmentation of spatial shape {space}"
            )
        if all(factor == 1 for factor in factors):
            sizes.append(None)
        else:
            sizes.append(size)
    return sizes


def labels_of_image(workspace: Workspace, name: str) -> np.ndarray:
    """Return the segmentation; raise a ValueError unless it has the image's spatial shape."""
    keys = ("image", "segmentation")
    spaces = {key: workspace[key].shape[1:] for key in keys if key in workspace}
    if len(spaces) < 2 or len(set(spaces.values())) > 1:
        raise ValueError(
            f"{name} needs an image and a segmentation of one spatial shape, got {spaces}"
        )
    return workspace.labels()


@lru_cache(maxsize=256)
def nearest(length: int, size: int) -> np.ndarray:
    """Return, for each voxel of an axis of `size`, the one of an axis of `length` that it lies in.

    It is the one that torch's nearest-exact finds. (torch's results differ between CPUs if a finer
    axis meets the border between two voxels; these do not.) All callers get the same array, for
    reading only.
    """
    # In float32 throughout, as torch computes it.
    step = np.float32(length) / np.float32(size)
    centers = np.arange(size, dtype=np.float32) + np.float32(0.5)
    rows: np.ndarray = np.floor(centers * step).astype(np.int64)
    # Rounding may move the last one beyond the axis.
    rows[rows >= length] = length - 1
    return rows
