"""detaug.current() tells people's own code where it is and gives it the batch's Generator."""

from __future__ import annotations

from typing import Any

import pytest
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

import detaug
from detaug import SeedTree
from tests.support.augmenters import Maker
from tests.support.comparing import take
from tests.support.loaders import Samples


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
    augmenter = make.from_dataset(Samples(12), 4, num_processes=n, seed=31, name="train", num_streams=2)
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
