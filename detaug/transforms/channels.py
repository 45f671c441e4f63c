"""Labels as channels of the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from detaug.transforms.building.base import Params, Shapes, Transform
from detaug.transforms.building.checks import argument, channels
from detaug.transforms.building.gate import many, number, takes
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.labels import labels_of_image


class MoveSegAsOneHotToData(Transform):
    """One image channel more for each label: 1 for voxels with the label, else 0.

    Args:
        source_channel_idx: the segmentation's channel (nnU-Net: the previous stage's).
        all_labels: the labels, in the order of the new channels.
        remove_channel_from_source: remove the channel from the segmentation.

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
        # Without labels there is nothing to add, and the image need not be copied.
        if self.all_labels:
            # One pass instead of an array for each label and a concatenation.
            # Images of other dtypes are converted when they are assigned to the float32 result.
            image = workspace["image"]
            num_channels = len(image) + len(self.all_labels)
            result = np.empty((num_channels, *labels.shape[1:]), dtype=np.float32)
            result[: len(image)] = image
            for label, one_hot in zip(self.all_labels, result[len(image) :], strict=True):
                one_hot[...] = labels[channel] == label
            workspace.put("image", result)
        if self.remove_channel_from_source:
            workspace.put("segmentation", np.delete(labels, channel, axis=0))

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        count, *space = shapes["image"]
        changed = dict(shapes)
        changed["image"] = (count + len(self.all_labels), *space)
        if self.remove_channel_from_source:
            num_segmentations, *label_space = shapes["segmentation"]
            changed["segmentation"] = (num_segmentations - 1, *label_space)
        return changed
