"""detaug's transforms in MONAI's pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from monai.data.meta_tensor import MetaTensor
from monai.transforms.transform import MapTransform, Randomizable

from detaug.loops.samples import with_float_images
from detaug.seeding.tree import make_generator
from detaug.transforms.building.base import Transform
from detaug.transforms.building.calls import call_on_grid, checked_keys
from detaug.transforms.building.grids import VoxelGrid, affine_of_grid, grid_of_affine

__all__ = ["Wrap"]


class Wrap(Randomizable, MapTransform):
    """A transform of detaug's as a MONAI transform of dicts.

    It draws by MONAI's protocol: the Generator's seed comes from ``self.R``, which
    `set_random_state`, `set_determinism` and MONAI's DataLoader seed, and detaug's augmenters as
    well.

    Args:
        transform: of `detaug.transforms`, of one sample.
        keys: the dict's keys that are transformed together, and their roles: ``{"image": "image",
            "label": "segmentation"}``. Items are ``(C, X, Y[, Z])``; MetaTensors, tensors and
            arrays come out as they came in, with their dtype, but for images of integers, which
            become float32. The meta data are the item's own. Where there are MetaTensors,
            `SpatialTransform` turns in millimetres, and their affines follow crops (as in
            `detaug.torchio.Wrap`).
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
        grid = _common_grid({name: data[name] for name in names})
        result, new_grid = call_on_grid(self.transform, arrays, roles, self._generator, grid)
        if new_grid == grid:
            new_grid = None
        return {**data, **{name: _as_given(result[name], data[name], new_grid) for name in names}}


def _plain(item: Any) -> Any:
    return item.as_tensor() if isinstance(item, MetaTensor) else item


def _common_grid(items: Mapping[str, Any]) -> VoxelGrid | None:
    """Return the grid of the MetaTensors among some items, None without any.

    Raises:
        ValueError: two of them have different spacings.
    """
    grids = {
        name: grid_of_affine(item.affine, item.ndim - 1)
        for name, item in items.items()
        if isinstance(item, MetaTensor)
    }
    if not grids:
        return None
    first, reference = next(iter(grids.items()))
    for name, grid in grids.items():
        if not np.allclose(grid.spacing, reference.spacing, rtol=1e-3):
            raise ValueError(
                f"items that are transformed together must have one spacing, got {first} "
                f"{reference.spacing} and {name} {grid.spacing}: resample one of them first, e.g. "
                "by monai.transforms.ResampleToMatchd"
            )
    return reference


def _as_given(result: Any, item: Any, grid: VoxelGrid | None) -> Any:
    """Return a result as a MetaTensor where the item was one.

    Args:
        grid: where the result's voxels lie, if that has changed.
    """
    if not isinstance(item, MetaTensor):
        return result
    tensor: MetaTensor = MetaTensor(result).copy_meta_from(item)  # type: ignore[no-untyped-call]
    if grid is not None:
        tensor.affine = torch.from_numpy(affine_of_grid(item.affine, grid)).to(item.affine.dtype)
    return tensor
