"""detaug's transforms in TorchIO's pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchio import Image, LabelMap, Subject
from torchio.transforms import Transform as TorchIOTransform

from detaug.seeding.tree import make_generator
from detaug.transforms.building.base import Transform
from detaug.transforms.building.calls import call_on_grid
from detaug.transforms.building.grids import affine_of_grid, common_grid, grid_of_affine
from detaug.transforms.building.samples import with_float_images

__all__ = ["Wrap"]


class Wrap(TorchIOTransform):
    """A transform of detaug as a TorchIO transform, for all inputs that TorchIO accepts.

    The Generator's seed is drawn from torch's global generator, like all random numbers of TorchIO.

    `SpatialTransform` rotates, shears, scales and shifts in millimetres, as TorchIO does, along the
    array's axes, in an oblique scan too (there TorchIO's own transforms turn about the axes of the
    world). These axes are taken to be perpendicular: in a sheared affine (a tilted gantry) lengths
    are right along each axis alone. An axis of one voxel does not change, so that a 2-D image
    (C, X, Y, 1) stays in its plane. Affines follow crops, quarter turns and exchanged axes: every
    voxel that remains keeps its position in space. Rotations, scalings and mirrorings move the body
    and not the voxel grid, as in TorchIO.

    Args:
        transform: one of `detaug.transforms` that takes a single sample. A subject's ScalarImages
            are images, its LabelMaps segmentations. All must have the same spatial shape and
            spacing. Dtypes and paths do not change, but ScalarImages of integers become float32.
        seed: four 32-bit words; None: drawn for each call. A subject's history contains the words,
            so that the call can be repeated.
        **options: ``p``, ``include``, ``exclude`` and others, as for all TorchIO transforms.
    """

    def __init__(self, transform: Transform, seed: list[int] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.transform = transform
        self.seed = seed
        self.args_names = ["transform", "seed"]

    def apply_transform(self, subject: Subject) -> Subject:
        """Transform a subject in place, and return it. TorchIO calls this method."""
        # Drawn from torch, whose seed TorchIO's users set; a list, since histories hold lists.
        words = self.seed or torch.randint(2**32, (4,)).tolist()
        images = subject.get_images_dict(
            intensity_only=False, include=self.include, exclude=self.exclude
        )
        roles = {name: _role_of(image) for name, image in images.items()}
        arrays = with_float_images({name: image.data for name, image in images.items()}, roles)
        grids = {name: grid_of_affine(image.affine, 3) for name, image in images.items()}
        grid = common_grid(grids, "torchio.Resample, or leave one out by exclude=")
        generator = make_generator(np.random.SeedSequence(words))
        result, new_grid = call_on_grid(self.transform, arrays, roles, generator, grid)
        for name, image in images.items():
            image.set_data(result[name])
            if new_grid is not None and new_grid != grid:
                image.affine = affine_of_grid(image.affine, new_grid)
        self._last_seed = words
        return subject

    def _get_reproducing_arguments(self) -> dict[str, Any]:
        arguments = super()._get_reproducing_arguments()  # type: ignore[no-untyped-call]
        return {**arguments, "seed": self._last_seed}


def _role_of(image: Image) -> str:
    """Return the role of a subject's image in the transforms of detaug."""
    if isinstance(image, LabelMap):
        return "segmentation"
    return "image"
