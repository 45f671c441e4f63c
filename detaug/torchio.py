"""detaug's transforms in TorchIO's pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torchio import LabelMap, Subject
from torchio.transforms import Transform as TorchIOTransform

from detaug.loops.samples import with_float_images
from detaug.seeding.tree import make_generator
from detaug.transforms.building.base import Transform
from detaug.transforms.building.calls import call_with_roles

__all__ = ["Wrap"]


class Wrap(TorchIOTransform):
    """A transform of detaug's as a TorchIO transform: takes and gives whatever these do.

    The Generator's seed is drawn from torch's global generator, as all of TorchIO's random numbers are.

    Args:
        transform: of `detaug.transforms`, of one sample. A subject's ScalarImages are its images, and its LabelMaps the
            segmentation; all have one spatial shape. Dtypes, affines and paths stay as they are, also where the
            transform moves voxels; but ScalarImages of integers become float32.
        seed: four 32-bit words; None: drawn for each call. Subjects' histories have them, so that a call can be repeated.
        options: ``p``, ``include``, ``exclude`` ... of all TorchIO transforms.
    """

    def __init__(self, transform: Transform, seed: list[int] | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.transform = transform
        self.seed = seed
        self.args_names = ["transform", "seed"]

    def apply_transform(self, subject: Subject) -> Subject:
        words = self.seed or torch.randint(2**32, (4,)).tolist()
        chosen = {"include": self.include, "exclude": self.exclude}
        images = subject.get_images_dict(intensity_only=False, **chosen)
        roles = {
            name: "segmentation" if isinstance(image, LabelMap) else "image"
            for name, image in images.items()
        }
        arrays = with_float_images({name: image.data for name, image in images.items()}, roles)
        made = call_with_roles(
            self.transform, arrays, roles, make_generator(np.random.SeedSequence(words))
        )
        for name, image in images.items():
            image.set_data(made[name])
        self._last = words
        return subject

    def _get_reproducing_arguments(self) -> dict[str, Any]:
        return {**super()._get_reproducing_arguments(), "seed": self._last}  # type: ignore[no-untyped-call]
