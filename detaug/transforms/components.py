"""Removal of connected components from one-hot channels (nnU-Net's cascade)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, ImageTransform, Params, Shapes
from detaug.transforms.building.checks import as_list, channels, finite, probability
from detaug.transforms.building.gate import KEY, channel_from_either_end, many, takes
from detaug.transforms.building.workspace import Workspace


class RemoveRandomConnectedComponentFromOneHotEncoding(ImageTransform):
    """The removal of one connected component from each of some one-hot channels, in a random order.

    A voxel of a channel belongs to a component if it is not 0; two such voxels belong to the same
    one if they share a face, an edge or a corner.

    Args:
        channel_idx: one or several channels of the image that hold one-hot labels; -1 is the last.
        fill_with_other_class_p: the probability that another of these channels gets the component,
            each with the same probability.
        dont_do_if_covers_more_than_x_percent: only components smaller than this part of all voxels
            are removed (a fraction, 0.25 for a quarter).
        p_per_label: the probability of each channel.

    Params: ``{"apply_to_channels": [channels], "key": 64 bits}``. Only the voxels tell which
    components there are. The one to be removed is drawn from the key's Generator when the transform
    is applied.

    Raises:
        IndexError: a channel that the image does not have.
    """

    def __init__(
        self,
        channel_idx: int | Sequence[int],
        fill_with_other_class_p: float = 0.25,
        dont_do_if_covers_more_than_x_percent: float = 0.25,
        p_per_label: float = 1,
    ) -> None:
        self.channel_idx = as_list(channel_idx)
        self.fill_with_other_class_p = probability(
            "fill_with_other_class_p", fill_with_other_class_p
        )
        self.dont_do_if_covers_more_than_x_percent = finite(
            "dont_do_if_covers_more_than_x_percent", dont_do_if_covers_more_than_x_percent
        )
        self.p_per_label = probability("p_per_label", p_per_label)

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        channels("channel_idx", self.channel_idx, shapes["image"][0])
        applied = draws.channels_drawn(rng, draws.shuffled(rng, self.channel_idx), self.p_per_label)
        return {"apply_to_channels": applied, "key": draws.key(rng)}

    @takes(apply_to_channels=many(channel_from_either_end), key=KEY)
    def change(self, workspace: Workspace, params: Params) -> None:
        rng = draws.generator_of(params["key"])
        count = len(workspace["image"])
        # Each once, in the user's order, which decides about draws.
        all_channels = list(dict.fromkeys(channels("channel_idx", self.channel_idx, count)))
        for channel in channels("apply_to_channels", params["apply_to_channels"], count):
            components, sizes = find_components(workspace.image()[channel])
            limit = components.size * self.dont_do_if_covers_more_than_x_percent
            removable = [component for component, size in enumerate(sizes, start=1) if size < limit]
            if not removable:
                continue
            # Not asked for earlier: an image from which nothing is removed need not be copied.
            image = workspace.writable("image")
            chosen = components == draws.choice(rng, removable)
            image[channel][chosen] = 0
            others = [other for other in all_channels if other != channel]
            if draws.happens(rng, self.fill_with_other_class_p) and others:
                image[draws.choice(rng, others)][chosen] = 1


def find_components(channel: np.ndarray) -> tuple[np.ndarray, list[int]]:
    """Return the components of the voxels that are not 0.

    Args:
        channel: (X, Y[, Z]).

    Returns:
        The number of each voxel's component, from 1 in the order of the components' first voxels, 0
        for none; and each component's number of voxels.
    """
    # Imported here because other transforms do not need it.
    from scipy import ndimage

    # Voxels that touch at faces, edges or corners are connected, as in batchgeneratorsv2.
    components, count = ndimage.label(channel != 0, np.ones((3,) * channel.ndim))
    sizes = np.zeros(count + 1, np.int64)
    # Plane by plane, because bincount makes an int64 copy of its argument.
    for plane in components:
        sizes += np.bincount(plane.ravel(), minlength=count + 1)
    return components, sizes[1:].tolist()
