"""Channels that move between the arrays of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.transforms.building.base import Params, Shapes, Transform
from detaug.transforms.building.checks import argument, as_list, channels
from detaug.transforms.building.gate import VOXEL_KEYS, many, number, takes
from detaug.transforms.building.workspace import IMAGE_KEYS, Workspace
from detaug.transforms.labels import labels_of_image


class MoveSegAsOneHotToData(Transform):
    """Appends one image channel per label, 1 where a channel of the segmentation has the label and else 0.

    Args:
        source_channel_idx: the segmentation's channel (nnU-Net: the previous stage's).
        all_labels: the labels, in the order of the new channels.
        remove_channel_from_source: whether the segmentation loses the channel.

    Params: ``{}``.

    Raises:
        IndexError: a channel that the segmentation does not have.
        ValueError: there is no image or no segmentation, or they differ in shape.
    """

    moves_voxels = False

    def __init__(
        self,
        source_channel_idx: int,
        all_labels: Sequence[int],
        remove_channel_from_source: bool = True,
    ) -> None:
        self.source_channel_idx = source_channel_idx
        self.all_labels = list(all_labels)
        argument("all_labels", self.all_labels, many(number()))
        self.remove_channel_from_source = remove_channel_from_source

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        labels = labels_of_image(workspace, "MoveSegAsOneHotToData")
        (channel,) = channels("source_channel_idx", [self.source_channel_idx], len(labels))
        if self.all_labels:
            image = workspace["image"]
            result = np.empty(
                (len(image) + len(self.all_labels), *labels.shape[1:]), dtype=np.float32
            )
            result[: len(image)] = image
            for label, added in zip(self.all_labels, result[len(image) :], strict=True):
                added[...] = labels[channel] == label
            workspace.put("image", result)
        if self.remove_channel_from_source:
            workspace.put("segmentation", np.delete(labels, channel, axis=0))

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        count, *space = shapes["image"]
        changed: dict[str, Any] = {"image": (count + len(self.all_labels), *space)}
        if self.remove_channel_from_source:
            changed["segmentation"] = (shapes["segmentation"][0] - 1, *shapes["segmentation"][1:])
        return {**shapes, **changed}


class MoveChannels(Transform):
    """Takes channels out of one array and appends them, in their order, to another one.

    Args:
        channel_ids: a channel of the source or several; the order in which they are named does not matter.
        source_key, target_key: two of ``image``, ``segmentation`` and ``regression_target``. A target that the sample
            does not have is made; a source that has no channel left is removed.

    Params: ``{}``. An image (or regression target) is floating point whatever is appended to it; labels with an image's
    channel appended become floating point as well.

    Raises:
        IndexError: a channel that the source does not have.
        ValueError: the sample has no source, the keys are one and the same or no such keys, or the shapes differ.
    """

    moves_voxels = False

    def __init__(self, channel_ids: int | Sequence[int], source_key: str, target_key: str) -> None:
        self.channel_ids = tuple(as_list(channel_ids))
        self.source_key = source_key
        self.target_key = target_key
        if not {source_key, target_key} <= set(VOXEL_KEYS) or source_key == target_key:
            raise ValueError(
                f"source_key and target_key must be two of {', '.join(VOXEL_KEYS)}, got {source_key!r} and "
                f"{target_key!r}"
            )

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        if self.source_key not in workspace:
            raise ValueError(
                f"the sample has no {self.source_key} to move channels from: it has {[*workspace.present()]}"
            )
        source = workspace[self.source_key]
        wanted = sorted(set(channels("channel_ids", self.channel_ids, len(source))))
        if not wanted:
            return
        moved = source[wanted]
        if self.target_key in workspace:
            target = workspace[self.target_key]
            if target.shape[1:] != moved.shape[1:]:
                raise ValueError(
                    f"{self.source_key} and {self.target_key} differ in their spatial shape: {moved.shape[1:]} "
                    f"and {target.shape[1:]}"
                )
            workspace.put(
                self.target_key, np.concatenate((target, moved), dtype=self._dtype(target, moved))
            )
        elif self.target_key in IMAGE_KEYS and moved.dtype.kind != "f":
            workspace.put(self.target_key, moved.astype(np.float32))
        else:
            workspace.put(self.target_key, moved)
        if len(wanted) < len(source):
            workspace.put(self.source_key, np.delete(source, wanted, axis=0))
        else:
            workspace.remove(self.source_key)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        count, *space = shapes[self.source_key]
        moved = len(set(channels("channel_ids", self.channel_ids, count)))
        before = shapes[self.target_key][0] if shapes.get(self.target_key) is not None else 0
        result = {
            **shapes,
            self.source_key: (count - moved, *space),
            self.target_key: (before + moved, *space),
        }
        return {
            key: shape for key, shape in result.items() if key != self.source_key or moved < count
        }

    def _dtype(self, target: np.ndarray, moved: np.ndarray) -> np.dtype[Any]:
        if self.target_key in IMAGE_KEYS:
            return np.dtype(np.float32)
        floating = [a.dtype for a in (target, moved) if a.dtype.kind == "f"]
        # like torch, NumPy would make float64 of int32 and float32
        return floating[0] if len(floating) == 1 else np.promote_types(target.dtype, moved.dtype)
