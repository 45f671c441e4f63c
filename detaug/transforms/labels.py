"""What is done with labels: removing one, joining them to regions, masking by them, smaller copies
of them.
"""

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
    """A transform of ``segmentation`` alone that draws nothing; without a segmentation it does
    nothing.
    """

    needs = "segmentation"
    moves_voxels = False


class RemoveLabel(_LabelTransform):
    """Gives the voxels of one label another one.

    Args:
        label_value: the label to remove; one that the segmentation's dtype cannot hold is nowhere.
        set_to: what takes its place.
        segmentation_channels: a channel or several; all if None.

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
        self.segmentation_channels = (
            None if segmentation_channels is None else as_list(segmentation_channels)
        )

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        labels = workspace["segmentation"]
        wanted = (
            range(len(labels)) if self.segmentation_channels is None else self.segmentation_channels
        )
        removed_from = channels("segmentation_channels", list(wanted), len(labels))
        for dtype in workspace.label_dtypes():
            representable("set_to", self.set_to, dtype)
        before, after = np.array([self.label_value, self.set_to]).astype(labels.dtype)
        if before != self.label_value or before == after or not removed_from:
            return  # no voxel can have the label, or none would change
        labels = workspace.writable("segmentation")
        bits = (
            labels.dtype if labels.dtype in (np.float32, np.float64) else UNSIGNED[labels.itemsize]
        )
        for c in removed_from:
            replace_label(labels[c].reshape(-1).view(bits), before.view(bits), after.view(bits))

    kernels = (replace_label,)


class ConvertSegmentationToRegions(_LabelTransform):
    """Replaces the segmentation by one boolean channel per region.

    Args:
        regions: each a label or several; a voxel may belong to more than one region.
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
        result = np.zeros((len(self.regions), *labels.shape[1:]), dtype=bool)
        for index, region in enumerate(self.regions):
            for label in region:
                result[index] |= labels[channel] == label
        workspace.put("segmentation", result)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        if shapes.get("segmentation") is None:
            return dict(shapes)
        return {**shapes, "segmentation": (len(self.regions), *shapes["segmentation"][1:])}


class MaskImage(Transform):
    """Sets image voxels to a value where a channel of the segmentation is negative (nnU-Net:
    outside the mask).

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
        for c in masked if outside.any() else ():
            np.copyto(
                workspace.writable("image")[c], np.float32(self.set_outside_to), where=outside
            )


class DownsampleSegForDS(_LabelTransform):
    """Replaces the segmentation by a list of copies of it for deep supervision, one per scale.

    Args:
        ds_scales: for each copy a factor, or one per spatial axis: an axis of n has ``round(n *
            factor)``. With 1 along every axis the copy is the segmentation itself.

    Params: ``{}``. Voxel i of an axis of m, made from n, is voxel ``floor((i + 1/2) * n / m)``,
    which is torch's
    ``nearest-exact``, with its rounding to float32.

    Raises:
        ValueError: a number of factors that does not fit, or an axis that would be empty.
    """

    def __init__(self, ds_scales: Sequence[float | Sequence[float]]) -> None:
        self.ds_scales = [
            tuple(s) if isinstance(s, (tuple, list, np.ndarray)) else s for s in ds_scales
        ]
        for factor in (f for s in self.ds_scales for f in (s if isinstance(s, tuple) else (s,))):
            argument("ds_scales", factor, number(above=0))
        self.spatial_dims = next(
            (len(scale) for scale in self.ds_scales if isinstance(scale, tuple)), None
        )

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        full = workspace.contiguous("segmentation")
        levels = [
            full if size is None else picked(full, [*map(nearest, full.shape[1:], size)])
            for size in _sizes_of(tuple(self.ds_scales), full.shape[1:])
        ]
        workspace.put("segmentation", levels, owned=False)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        if shapes.get("segmentation") is None:
            return dict(shapes)
        count, *space = shapes["segmentation"]
        return {
            **shapes,
            "segmentation": [
                (count, *(size or space)) for size in _sizes_of(tuple(self.ds_scales), tuple(space))
            ],
        }

    kernels = (pick,)


@lru_cache(64)  # asked for thrice with every sample, as long as a plane takes to be copied
def _sizes_of(
    scales: tuple[float | tuple[float, ...], ...], space: tuple[int, ...]
) -> list[tuple[int, ...] | None]:
    """Return the spatial shape of each of `DownsampleSegForDS`'s copies.

    None stands for the segmentation itself.
    """
    sizes: list[tuple[int, ...] | None] = []
    for scale in scales:
        factors = scale if isinstance(scale, tuple) else (scale,) * len(space)
        if len(factors) != len(space):
            raise ValueError(f"ds_scales has {scale} for a segmentation of spatial shape {space}")
        size = tuple(round(n * factor) for n, factor in zip(space, factors, strict=True))
        if 0 in size:
            raise ValueError(
                f"ds_scales {scale} leave nothing of a segmentation of spatial shape {space}"
            )
        sizes.append(None if all(factor == 1 for factor in factors) else size)
    return sizes


def labels_of_image(workspace: Workspace, name: str) -> np.ndarray:
    """Return the segmentation; a ValueError unless it has the image's spatial shape."""
    space = {key: workspace[key].shape[1:] for key in ("image", "segmentation") if key in workspace}
    if len(space) < 2 or space["image"] != space["segmentation"]:
        raise ValueError(
            f"{name} needs an image and a segmentation of one spatial shape, got {space}"
        )
    return workspace.labels()


@lru_cache(maxsize=256)
def nearest(length: int, size: int) -> np.ndarray:
    """Return, for each voxel of an axis of ``size``, the voxel of an axis of ``length`` it lies in.

    It is the one that torch's nearest-exact finds, which differs between CPUs where a finer axis
    meets the border between two voxels; this does not. Every caller gets the same array, which must
    not be written to.
    """
    step = np.float32(length) / np.float32(size)
    rows: np.ndarray = np.floor(
        (np.arange(size, dtype=np.float32) + np.float32(0.5)) * step
    ).astype(np.int64)
    rows[rows >= length] = length - 1
    return rows
