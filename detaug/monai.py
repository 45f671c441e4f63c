"""detaug's transforms in MONAI's pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from monai.data.meta_tensor import MetaTensor
from monai.transforms.transform import MapTransform, Randomizable

from detaug.seeding.tree import make_generator
from detaug.transforms.building.base import Transform
from detaug.transforms.building.calls import call_on_grid, checked_keys
from detaug.transforms.building.grids import (
    VoxelGrid,
    affine_of_grid,
    common_grid,
    grid_of_affine,
)
from detaug.transforms.building.samples import with_float_images

__all__ = ["Wrap"]


class Wrap(Randomizable, MapTransform):
    """A transform of detaug as a MONAI transform of dicts.

    It follows MONAI's protocol for random numbers: the Generator's seed is drawn from ``self.R``.
    `set_random_state`, `set_determinism`, MONAI's DataLoader and detaug's augmenters seed that.

    Args:
        transform: one of `detaug.transforms` that takes a single sample.
        keys: the dict's keys that are transformed together, with their roles: ``{"image": "image",
            "label": "segmentation"}``. Items are MetaTensors, tensors or arrays ``(C, X, Y[, Z])``.
            Results have the item's type, dtype and meta data, but images of integers become
            float32. If there are MetaTensors, `SpatialTransform` works in millimetres, and affines
            follow crops (as in `detaug.torchio.Wrap`).
        allow_missing_keys: accept dicts without some of the keys.
    """

    def __init__(
        self, transform: Transform, keys: Mapping[str, str], allow_missing_keys: bool = False
    ) -> None:
        self.roles = {name: role for name, role in checked_keys(keys).items() if role is not None}
        MapTransform.__init__(self, list(self.roles), allow_missing_keys)
        self.transform = transform

    def randomize(self, data: Any = None) -> None:
        """Make the next call's Generator from 128 drawn bits."""
        # `R` is a RandomState: it gives a seed, as long as detaug's own, for a Generator.
        words = self.R.randint(0, 2**32, 4, np.uint32).tolist()
        self._generator = make_generator(np.random.SeedSequence(words))

    def __call__(self, data: Mapping[Any, Any]) -> dict[Any, Any]:
        self.randomize()
        items = {name: data[name] for name in self.key_iterator(data)}
        roles = {name: self.roles[name] for name in items}
        arrays = with_float_images({name: _plain(item) for name, item in items.items()}, roles)
        grids = {}
        for name, item in items.items():
            # Plain arrays have no affine: they are taken to lie on the grid of those that have one.
            if isinstance(item, MetaTensor):
                grids[name] = grid_of_affine(item.affine, item.ndim - 1)
        grid = common_grid(grids, "monai.transforms.ResampleToMatchd")
        transformed, new_grid = call_on_grid(self.transform, arrays, roles, self._generator, grid)
        if new_grid == grid:
            # Affines that need not change keep all of their digits.
            new_grid = None
        result = dict(data)
        for name, item in items.items():
            result[name] = _like_item(transformed[name], item, new_grid)
        return result


def _plain(item: Any) -> Any:
    """Return a MetaTensor as a plain tensor, and any other item unchanged."""
    if isinstance(item, MetaTensor):
        return item.as_tensor()
    return item


def _like_item(result: Any, item: Any, grid: VoxelGrid | None) -> Any:
    """Return a result as a MetaTensor if the item was one.

    Args:
        result: a transformed tensor or array.
        item: the item before the transform.
        grid: the voxel grid of the result; None: the item's.
    """
    if not isinstance(item, MetaTensor):
        return result
    tensor: MetaTensor = MetaTensor(result).copy_meta_from(item)  # type: ignore[no-untyped-call]
    if grid is not None:
        tensor.affine = torch.from_numpy(affine_of_grid(item.affine, grid)).to(item.affine.dtype)
    return tensor
