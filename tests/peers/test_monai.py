"""MONAI."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("monai", reason="MONAI is not installed (the extra `peers`)")

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
    with build(example, tmp_path, num_processes=num_processes, check_every=0) as augmenter:  # a check loads as well
        for epoch in range(_EPOCHS):
            augmenter.set_epoch(epoch)
            assert len(list(augmenter)) == len(augmenter)
    times = Counter(index for index, _ in loads(tmp_path))
    assert set(times) == set(range(ITEMS))
    at_most = 1 if name == "CacheDataset" else max(1, num_processes)
    assert max(times.values()) <= at_most, f"in {_EPOCHS} epochs the items were loaded so often: {times}"
