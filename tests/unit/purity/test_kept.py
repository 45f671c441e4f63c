"""Caches that are known to be pure go on from batch to batch; what copies cost, and what is large in them, is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform

from detaug import fingerprint
from detaug.purity.copy_cost import CopyCost
from detaug.purity.template import Template, kept_of
from detaug.seeding.generators import reseed_global_rngs


def spatial() -> SpatialTransform:
    return SpatialTransform((8, 8, 8), 0, False, p_rotation=1.0, p_scaling=1.0)


class Derived(SpatialTransform):
    pass


class Unsized:
    def __sizeof__(self) -> int:
        raise RuntimeError("a batch failed for want of advice")


class Other:
    _grid_cache: dict[Any, Any]


def test_it_is_batchgeneratorsv2s_grid() -> None:
    assert kept_of(SpatialTransform, ()) == kept_of(Derived, ()) == {"_grid_cache"}
    assert kept_of(SpatialTransform, ("mine",)) == {"_grid_cache", "mine"}
    assert kept_of(Other, ()) == kept_of(int, ()) == frozenset()
    assert "_grid_cache" in vars(spatial())  # as long as it has that name


def test_copies_are_made_without_it() -> None:
    transform = spatial()
    image = torch.rand(1, 8, 8, 8, generator=torch.Generator().manual_seed(1))
    reseed_global_rngs(np.random.SeedSequence(2))
    expected = transform(image=image.clone())["image"]
    assert transform._grid_cache
    copy = Template(transform).copy()[0]
    assert "_grid_cache" not in vars(copy)
    copy._grid_cache = transform._grid_cache
    reseed_global_rngs(np.random.SeedSequence(2))
    assert fingerprint(copy(image=image.clone())["image"]) == fingerprint(expected)


def test_what_is_large_in_costly_copies_is_named() -> None:
    said: list[str] = []
    held = SimpleNamespace(
        table=np.zeros(30_000), cases=[{"id": i} for i in range(20_000)], few=[1, 2], odd=Unsized()
    )
    pristine: Any = SimpleNamespace(transforms={"transform": held}, keep=())
    costly, cheap = (CopyCost(pristine, said.append) for _ in range(2))
    used: Any = SimpleNamespace(value=pristine.transforms)
    for _ in range(20):
        cheap.add(0.0005, 0.1, used)
        costly.add(0.01, 0.1, used)
    (text,) = said
    assert (
        "takes 10.0 ms, 9.1 % of a batch; largest: transform.table (234 kB), transform.cases (1"
        in text
    )
