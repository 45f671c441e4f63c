"""What code in a batch knows of its place and seed, and the caller's global random state, which is
its own.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase
from numba import _helperlib

import detaug
from detaug import DeterministicAugmenter, SeedTree
from detaug.training import audit, isolate_rng, seed_everything
from detaug.transforms import ForeignTransform
from detaug.verification import verify
from tests.processes.acceptance import drawing
from tests.processes.acceptance.drawing import DrawsFromMine
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of, take
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


def callers_state() -> tuple[Any, ...]:
    """Return the state of every global generator and of those that the user owns."""
    name, key, *rest = np.random.get_state()
    numbas = (_helperlib.rnd_get_np_state_ptr(), _helperlib.rnd_get_py_state_ptr())
    return (
        random.getstate(),
        name,
        key.tobytes(),
        tuple(rest),
        torch.get_rng_state().numpy().tobytes(),
        *(str(_helperlib.rnd_get_state(pointer)) for pointer in numbas),
        drawing.HELD.bit_generator.state,
        DrawsFromMine.of_class.bit_generator.state,
        str(drawing.OF_MODULE.get_state()),
    )


def disturb() -> None:
    random.seed(99)
    np.random.seed(98)
    torch.manual_seed(97)
    random.gauss(0, 1)  # leaves a cached second value behind, which is part of the state
    np.random.standard_normal()


def all_ways(augmenter: DeterministicAugmenter) -> None:
    """Take epochs, replay, move, save and load."""
    for _ in range(2):
        list(augmenter)
    augmenter.replay(0, 2)
    augmenter.set_epoch(7)
    augmenter.load_state_dict(augmenter.state_dict())
    next(augmenter)
    augmenter.close()


def failing(augmenter: DeterministicAugmenter) -> None:
    """Run into the failure of step 1 and replay it."""
    next(augmenter)
    with pytest.raises(ValueError, match="voxel"):
        next(augmenter)
    with pytest.raises(ValueError, match="voxel"):
        augmenter.replay(0, 1)


def building(make: Maker) -> None:
    """Build augmenters that draw a seed."""
    make(RandomLoader(), None, 2)
    make(IndexLoader(10, 2, seed_for_shuffle=None), None, 0)
    make.from_dataset(Samples(), 2, num_processes=0)
    make(RandomLoader, None, 0)  # it makes a loader, and is called with seeds of its own


def drawn(image: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"image": image + random.random() + np.random.random() + torch.rand(image.shape)}


def isolated() -> None:
    with isolate_rng():
        seed_everything(3, workers=False)


MODEL = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Dropout(0.5))
OPTIONS_OF_FOUR: dict[str, Any] = {"seed": 1, "batches_per_epoch": 4}
# what is used → the use
USES: dict[str, Callable[[Maker], Any]] = {
    **{
        f"an augmenter of {loader.__name__} with {n} workers": lambda make, loader=loader, n=n: (
            all_ways(make(loader(), DrawsFromMine(), n, **OPTIONS_OF_FOUR))
        )
        for loader in (RandomLoader, RandomSampler, Walker)
        for n in (0, 2)
    },
    "a loader that fails here": lambda make: failing(make(RaisesAt((1,)), None, 0, seed=1)),
    "a loader that fails in a worker": lambda make: failing(make(RaisesAt((1,)), None, 2, seed=1)),
    "the building of augmenters": building,
    "a foreign transform": lambda _: ForeignTransform(drawn)(
        image=torch.zeros(1, 4, 4), rng=np.random.default_rng(3)
    ),
    "verify": lambda _: verify(drawing.pipeline, batches=4, processes=[2], start_methods=["fork"]),
    "audit": lambda _: audit(MODEL, torch.nn.MSELoss(), (torch.ones(2, 3), torch.zeros(2, 3))),
    "a seed within isolate_rng": lambda _: isolated(),
}


@pytest.mark.usefixtures("preloaded_trials")
@pytest.mark.parametrize("use", USES)
def test_the_callers_random_state_is_as_it_was_after(make: Maker, use: str) -> None:
    disturb()
    before = callers_state()
    USES[use](make)
    assert callers_state() == before


@pytest.mark.parametrize("n", [0, 2])
def test_the_callers_random_state_is_as_it_was_between_batches(make: Maker, n: int) -> None:
    disturb()
    before = callers_state()
    for _batch in make(RandomLoader(), DrawsFromMine(), n, **OPTIONS_OF_FOUR):
        assert callers_state() == before


@pytest.mark.parametrize("n", [0, 2])
def test_what_the_caller_draws_in_between_changes_no_batch(make: Maker, n: int) -> None:
    expected = fingerprints_of(take(make(Walker(), Noise(), 0, seed=1), 10))
    augmenter = make(Walker(), Noise(), n, seed=1)
    got = []
    for step in range(10):
        random.seed(step)
        np.random.seed(step)
        torch.manual_seed(step)
        got += fingerprints_of([next(augmenter)])
        random.random(), np.random.rand(3), torch.rand(2)
    assert got == expected
