"""Where in a case a patch is cut: nnU-Net's rules, as pure functions of a Generator, the case's extents and the places of
its classes.

Source: nnU-Net v2.8's ``nnUNetDataLoader.get_bbox``. The same distribution, from other random numbers: draws come from a
Generator's raw doubles (see `detaug.transforms.building.draws`).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from detaug.transforms.building import draws

ClassLocations = Mapping[Any, Any]


def room_for_patches(
    space: Sequence[int], patch_size: Sequence[int], padding: Sequence[int]
) -> tuple[list[int], list[int]]:
    """The lowest and the highest first voxel of a patch along each axis; negative where it begins before the case does.

    `padding` voxels are added around the case along each axis, for both sides together. A case that is smaller than the patch is
    padded to its size.
    """
    lowest, highest = [], []
    for extent, patch, wanted in zip(space, patch_size, padding, strict=True):
        pad = max(wanted, patch - extent)
        lowest.append(-pad // 2)
        highest.append(extent + pad // 2 + pad % 2 - patch)
    return lowest, highest


def draw_patch_start(
    rng: np.random.Generator,
    space: Sequence[int],
    patch_size: Sequence[int],
    padding: Sequence[int],
    *,
    foreground: bool,
    class_locations: ClassLocations | None,
    annotated_key: tuple[int, ...],
    has_ignore: bool,
) -> list[int]:
    """The first voxel of a patch.

    Anywhere in the room (`room_for_patches`), each place as likely as the others; with `foreground`, about a random voxel of a
    random class of those that the case has; with an ignore label and without `foreground`, about a random annotated voxel.

    Args:
        class_locations: class or region -> (N, 4) integers, channel and voxel of some places of it, as nnU-Net's
            preprocessing leaves them in a case's properties.
        annotated_key: the key under which the annotated voxels are, if there is an ignore label.

    Raises:
        ValueError: places of classes are needed and there are none in the case's properties.
    """
    lowest, highest = room_for_patches(space, patch_size, padding)
    places = None
    if foreground or has_ignore:
        if class_locations is None:
            raise ValueError(
                "patches with foreground are wanted, but the case's properties have no class_locations: preprocess it again"
            )
        places = _places(rng, class_locations, foreground, annotated_key)
    if places is None:
        return [low + draws.integer(rng, high - low + 1) for low, high in zip(lowest, highest, strict=True)]
    voxel = places[draws.integer(rng, len(places))]
    # the first number is the channel
    return [max(low, int(at) - patch // 2) for low, at, patch in zip(lowest, voxel[1:], patch_size, strict=True)]


def _places(
    rng: np.random.Generator, class_locations: ClassLocations, foreground: bool, annotated_key: tuple[int, ...]
) -> Any:
    """The voxels of the class that the patch is to show; None where the case has none."""
    if not foreground:
        places = class_locations.get(annotated_key, ())
        if len(places) == 0:
            warnings.warn("a case has no annotated voxels: its patch is cut anywhere", stacklevel=2)
        return places if len(places) else None
    present = [key for key, places in class_locations.items() if len(places) > 0]
    if annotated_key in present and len(present) > 1:
        present.remove(annotated_key)
    return class_locations[draws.choice(rng, present)] if present else None
