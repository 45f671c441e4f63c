"""Kernels are compiled before workers start, and by no worker."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest

from detaug.augmenter.warm_up import warm_up
from tests.support.preloaded import WITH_NUMBA, run_code

SCRIPT = """
import json, os, sys
import numpy as np

from detaug import DeterministicAugmenter, LocalProcesses
from detaug.kernels.normals import add_normals
from detaug.transforms.compose import Compose, RandomApply
from detaug.transforms.noise import GaussianNoise


def compiled():
    stats = add_normals.dispatcher.stats
    return {"pid": os.getpid(), "compiled": sum(stats.cache_misses.values()), "loaded": sum(stats.cache_hits.values())}


class Loader:
    def __init__(self, transforms):
        self.transforms = transforms

    def __iter__(self):
        return self

    def __next__(self):
        return {"image": self.transforms(image=np.zeros((1, 4, 4, 4), np.float32))["image"]}


class Counting:
    # looks at what the loader's transforms left behind
    def __call__(self, **batch):
        return {**batch, **compiled()}


if __name__ == "__main__":
    loader, executor = Loader(Compose([RandomApply(GaussianNoise(0.1), 1.0)])), LocalProcesses(sys.argv[1])
    with DeterministicAugmenter(loader, Counting(), 1, seed=1, stateless=True, executor=executor, check=False) as augmenter:
        batches = [next(augmenter) for _ in range(6)]
    assert all(batch.pop("image").any() for batch in batches)
    print(json.dumps({"parent": compiled(), "workers": batches}))
"""


def run(tmp_path: Path, cache: Path, start_method: str) -> dict[str, Any]:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    done = run_code(
        script,
        start_method,
        folder=tmp_path,
        environment={**os.environ, "NUMBA_CACHE_DIR": str(cache)},
        interpreter=WITH_NUMBA,
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    result["said"] = done.stderr.splitlines()
    assert all(worker["pid"] != result["parent"]["pid"] for worker in result["workers"])
    return result


@pytest.fixture(scope="module")
def filled_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that one run has filled."""
    cache = tmp_path_factory.mktemp("cache")
    result = run(cache, cache, "fork")
    # a fork inherits the parent's counts together with its code
    assert result["parent"]["compiled"] == 1
    assert {(worker["compiled"], worker["loaded"]) for worker in result["workers"]} == {(1, 0)}
    before, *_, after = result["said"]  # and how far it is, where it takes long
    once = "once for this machine; `detaug warmup` does it ahead"
    assert re.fullmatch(
        rf"compiling 1 kernel, about \d s on an idle core, {re.escape(once)}", before
    )
    assert re.fullmatch(r"compiled 1 kernel in \d+ s", after)
    return cache


def test_parent_compiles_and_forked_workers_inherit(filled_cache: Path) -> None:
    assert list(filled_cache.rglob("*.nbc"))


def test_workers_of_fresh_interpreters_compile_nothing(tmp_path: Path, filled_cache: Path) -> None:
    before = {file: file.stat().st_mtime_ns for file in filled_cache.rglob("*.nb?")}
    result = run(tmp_path, filled_cache, "spawn")
    assert (result["parent"]["compiled"], result["parent"]["loaded"]) == (0, 1)
    assert {(worker["compiled"], worker["loaded"]) for worker in result["workers"]} == {(0, 1)}
    assert result["said"] == []
    assert {file: file.stat().st_mtime_ns for file in filled_cache.rglob("*.nb?")} == before


class Warmable:
    def __init__(self) -> None:
        self.times = 0

    def warm_up(self) -> None:
        self.times += 1

    def __call__(self, **batch: Any) -> Any:
        return batch


class Holder:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def __call__(self, **batch: Any) -> Any:
        return batch


def test_a_transform_wherever_it_is_is_warmed_up_once_and_a_loader_that_has_such_a_method_is_not() -> (
    None
):
    composed, in_a_subset, concatenated, loader = Warmable(), Warmable(), Warmable(), Warmable()
    transform = Holder(
        transforms=[Holder(transform=composed), Holder(list_of_transforms=(composed,)), len]
    )
    warm_up(
        transform,
        Holder(dataset=Holder(augment=in_a_subset, cases=[object()] * 3), indices=range(2)),
    )
    warm_up(None, Holder(datasets=[Holder(augment=concatenated)]))
    warm_up(None, loader)
    assert (composed.times, in_a_subset.times, concatenated.times, loader.times) == (1, 1, 1, 0)
