"""MONAI."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("monai", reason="MONAI is not installed (the extra `peers`)")

import monai.transforms as mt
import torch
from monai.data import MetaTensor, list_data_collate

from detaug import DeterministicAugmenter
from tests.peers.conformance import Conformance, build
from tests.peers.items import ITEMS, loads
from tests.peers.monai_pipelines import EXAMPLES

_EPOCHS = 4


class TestMonai(Conformance):
    """Every example of `monai_pipelines`."""


@pytest.mark.parametrize("name", ["CacheDataset", "runtime_cache", "PersistentDataset cache"])
@pytest.mark.parametrize("num_processes", [0, 2])
def test_a_cache_goes_on_caching(name: str, num_processes: int, tmp_path: Path) -> None:
    example = next(example for example in EXAMPLES if example.name == name)
    with build(example, tmp_path, num_processes=num_processes, check=False) as augmenter:  # a check loads as well
        for epoch in range(_EPOCHS):
            augmenter.set_epoch(epoch)
            assert len(list(augmenter)) == len(augmenter)
    times = Counter(index for index, _ in loads(tmp_path))
    assert set(times) == set(range(ITEMS))
    at_most = 1 if name == "CacheDataset" else max(1, num_processes)
    assert max(times.values()) <= at_most, f"in {_EPOCHS} epochs the items were loaded so often: {times}"


class Volumes(torch.utils.data.Dataset[Any]):
    def __init__(self, side: int) -> None:
        self.side = side
        self.transform = mt.RandFlipd(("image", "label"), 0.5, spatial_axis=0)

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> Any:
        shape = (1, self.side, self.side, self.side)
        image = torch.rand(shape, generator=torch.Generator().manual_seed(index))
        return self.transform({"image": MetaTensor(image), "label": MetaTensor(torch.zeros(shape))})


def operations(side: int) -> int:
    """Calls of MONAI's functions in an epoch of four batches, all of them checked in this process."""
    seen = 0

    def count(frame: Any, event: str, _: Any) -> None:
        nonlocal seen
        seen += event == "call" and "monai" in frame.f_globals.get("__name__", "")

    with DeterministicAugmenter.from_dataset(
        Volumes(side), 2, collate_fn=list_data_collate, num_processes=0, seed=1, check=1
    ) as augmenter:
        sys.setprofile(count)
        try:
            assert len(list(augmenter)) == 4
        finally:
            sys.setprofile(None)
        assert augmenter.stats()["checked"] == 4
    return seen


def test_a_check_of_64_cubed_asks_no_more_of_monai_than_one_of_8_cubed() -> None:
    assert 0 < operations(64) < 1.1 * operations(8)


def test_volumes_of_64_cubed_are_checked_by_default() -> None:
    with DeterministicAugmenter.from_dataset(
        Volumes(64), 2, collate_fn=list_data_collate, num_processes=2, seed=1
    ) as augmenter:
        for epoch in range(5):
            augmenter.set_epoch(epoch)
            assert len(list(augmenter)) == 4
        assert augmenter.stats()["checked"]
        assert augmenter.stats()["mismatches"] == 0
