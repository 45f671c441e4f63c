"""What code in a batch knows of its place and seed, and the caller's global random state, which is its own."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

import detaug
from detaug import SeedTree
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.faults import RaisesAt
from tests.support.loaders import IndexLoader, Noise, RandomLoader, RandomSampler, Samples, Walker


def draw() -> list[int]:
    return [int(x) for x in detaug.current().generator.integers(2**62, size=2)]


class Asks(SlimDataLoaderBase):
    def __init__(self) -> None:
        super().__init__(None, 1)

    def generate_train_batch(self) -> dict[str, Any]:
        now = detaug.current()
        return {
            "first": draw(),
            "second": draw(),
            "where": (now.epoch, now.step),
            "sample": now.sample,
            "kind": (type(now.generator).__name__, type(now.generator.bit_generator).__name__),
        }


class TransformAsks:
    def __call__(self, **batch: Any) -> dict[str, Any]:
        now = detaug.current()
        return {**batch, "third": draw(), "where in transform": (now.epoch, now.step)}


OPTIONS: dict[str, Any] = {"seed": 31, "num_streams": 3, "batches_per_epoch": 7}


@pytest.mark.parametrize("name", ["", "train", "a/b"])
@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("stateless", [False, True])
def test_loader_and_transform_know_their_place_and_the_seed_trees_generator(
    make: Maker, name: str, n: int, stateless: bool
) -> None:
    """It goes on within the batch and into the transform."""
    augmenter = make(Asks(), TransformAsks(), n, name=name, stateless=stateless, **OPTIONS)
    tree = SeedTree(31).child(name) if name else SeedTree(31)
    for epoch in range(2):
        for step, batch in enumerate(augmenter):
            assert batch["where"] == batch["where in transform"] == (epoch, step)
            assert batch["sample"] is None
            assert batch["kind"] == ("Generator", "PCG64DXSM")
            generator = tree.generator(epoch, step, num_streams=3)
            for key in ("first", "second", "third"):
                assert batch[key] == [int(x) for x in generator.integers(2**62, size=2)]


@pytest.mark.parametrize("n", [0, 2])
def test_each_sample_of_a_dataset_has_its_own_generator(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(
        Samples(12), 4, num_processes=n, seed=31, name="train", num_streams=2
    )
    tree = SeedTree(31).child("train")
    for epoch in range(2):
        for step, batch in enumerate(augmenter):
            assert batch["sample"].tolist() == [0, 1, 2, 3]
            assert batch["epoch"].tolist() == [epoch] * 4
            assert batch["step"].tolist() == [step] * 4
            for sample in range(4):
                generator = tree.generator(epoch, step, num_streams=2, sample=sample)
                assert batch["own"][sample].tolist() == generator.random(2).tolist()


def test_outside_of_a_batch_there_is_no_current_batch(make: Maker) -> None:
    take(make(Asks(), None, 0, seed=1), 3)
    with pytest.raises(RuntimeError, match="batch"):
        detaug.current()


def global_state() -> tuple[Any, ...]:
    name, key, *rest = np.random.get_state()
    return (
        random.getstate(),
        name,
        key.tobytes(),
        tuple(rest),
        torch.get_rng_state().numpy().tobytes(),
    )


def disturb() -> None:
    random.seed(99)
    np.random.seed(98)
    torch.manual_seed(97)
    random.gauss(0, 1)  # leaves a cached second value behind, which is part of the state
    np.random.standard_normal()


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("loader", [RandomLoader, RandomSampler, Walker])
def test_making_batches_leaves_the_callers_state_as_it_was(
    make: Maker, loader: type, n: int
) -> None:
    disturb()
    before = global_state()
    augmenter = make(loader(), Noise(), n, seed=1, batches_per_epoch=4)
    for _ in range(2):
        for _batch in augmenter:
            assert global_state() == before
    augmenter.replay(0, 2)
    assert global_state() == before
    augmenter.set_epoch(7)
    augmenter.load_state_dict(augmenter.state_dict())
    next(augmenter)
    augmenter.close()
    assert global_state() == before


def test_drawing_a_seed_and_building_take_nothing_from_the_callers_state(make: Maker) -> None:
    disturb()
    before = global_state()
    make(RandomLoader(), None, 2)
    make(IndexLoader(10, 2, seed_for_shuffle=None), None, 0)
    make.from_dataset(Samples(), 2, num_processes=0)
    assert global_state() == before


@pytest.mark.parametrize("n", [0, 2])
def test_error_in_the_loader_leaves_the_callers_state_as_it_was(make: Maker, n: int) -> None:
    disturb()
    before = global_state()
    augmenter = make(RaisesAt((1,)), None, n, seed=1)
    next(augmenter)
    with pytest.raises(ValueError, match="voxel"):
        next(augmenter)
    with pytest.raises(ValueError, match="voxel"):
        augmenter.replay(0, 1)
    assert global_state() == before


@pytest.mark.parametrize("n", [0, 2])
def test_what_the_caller_draws_in_between_changes_no_batch(make: Maker, n: int) -> None:
    expected = prints(take(make(Walker(), Noise(), 0, seed=1), 10))
    augmenter = make(Walker(), Noise(), n, seed=1)
    got = []
    for step in range(10):
        random.seed(step)
        np.random.seed(step)
        torch.manual_seed(step)
        got += prints([next(augmenter)])
        random.random(), np.random.rand(3), torch.rand(2)
    assert got == expected
