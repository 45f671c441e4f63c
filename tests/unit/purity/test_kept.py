"""Caches that are known to be pure are carried from batch to batch."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform

from detaug import fingerprint
from detaug.pipeline.copying.snapshot import Snapshot, carried_names
from detaug.seeding.generators import reseed_global_rngs


def spatial() -> SpatialTransform:
    return SpatialTransform((8, 8, 8), 0, False, p_rotation=1.0, p_scaling=1.0)


class Derived(SpatialTransform):
    pass


class Other:
    _grid_cache: dict[Any, Any]


def test_it_is_batchgeneratorsv2s_grid() -> None:
    assert carried_names(SpatialTransform, ()) == carried_names(Derived, ()) == {"_grid_cache"}
    assert carried_names(SpatialTransform, ("mine",)) == {"_grid_cache", "mine"}
    assert carried_names(Other, ()) == carried_names(int, ()) == frozenset()
    # This fails if batchgeneratorsv2 renames its cache.
    assert "_grid_cache" in vars(spatial())


def test_copies_are_made_without_it() -> None:
    transform = spatial()
    image = torch.rand(1, 8, 8, 8, generator=torch.Generator().manual_seed(1))
    reseed_global_rngs(np.random.SeedSequence(2))
    expected = transform(image=image.clone())["image"]
    assert transform._grid_cache
    copy = Snapshot(transform).copy()[0]
    assert "_grid_cache" not in vars(copy)
    copy._grid_cache = transform._grid_cache
    reseed_global_rngs(np.random.SeedSequence(2))
    assert fingerprint(copy(image=image.clone())["image"]) == fingerprint(expected)
