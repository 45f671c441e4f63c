"""detaug's transforms in MONAI's pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from monai.data.meta_tensor import MetaTensor
from monai.transforms.transform import MapTransform, Randomizable

from detaug.loops.samples import with_float_images
from detaug.seeding.tree import make_generator
from detaug.transforms.building.base import Transform
from detaug.transforms.building.calls import call_with_roles, checked_keys

__all__ = ["Wrap"]


class Wrap(Randomizable, MapTransform):
    """A transform of detaug's as a MONAI transform of dicts.

    It draws by MONAI's protocol: the Generator's seed comes from ``self.R``, which `set_random_state`, `set_determinism` and
    MONAI's DataLoader seed, and detaug's augmenters as well.

    Args:
        transform: of `detaug.transforms`, of one sample.
        keys: the dict's keys that are transformed together, and their roles: ``{"image": "image", "label":
            "segmentation"}``. Items are ``(C, X, Y[, Z])``; MetaTensors, tensors and arrays come out as they came in, with
            their dtype, but for images of integers, which become float32. The meta data and the affine are the item's own:
            also where the transform moves voxels.
        allow_missing_keys: items without some of the keys are taken.
    """

    def __init__(
        self, transform: Transform, keys: Mapping[str, str], allow_missing_keys: bool = False
    ) -> None:
        self.roles = {name: role for name, role in checked_keys(keys).items() if role is not None}
        MapTransform.__init__(self, list(self.roles), allow_missing_keys)
        self.transform = transform

    def randomize(self, data: Any = None) -> None:
        """Make the next call's Generator, from 128 drawn bits."""
        self._generator = make_generator(
            np.random.SeedSequence(self.R.randint(0, 2**32, 4, np.uint32).tolist())
        )

    def __call__(self, data: Mapping[Any, Any]) -> dict[Any, Any]:
        self.randomize()
        names = list(self.key_iterator(data))
        roles = {name: self.roles[name] for name in names}
        arrays = with_float_images({name: _plain(data[name]) for name in names}, roles)
        made = call_with_roles(self.transform, arrays, roles, self._generator)
        return {**data, **{name: _as_given(made[name], data[name]) for name in names}}


def _plain(item: Any) -> Any:
    return item.as_tensor() if isinstance(item, MetaTensor) else item


def _as_given(made: Any, given: Any) -> Any:
    if not isinstance(given, MetaTensor):
        return made
    kept: MetaTensor = MetaTensor(made).copy_meta_from(given)  # type: ignore[no-untyped-call]
    return kept
