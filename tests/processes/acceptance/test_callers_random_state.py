"""The caller's global random state is its own; the worker's is reseeded for every batch."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.faults import RaisesAt
from tests.support.loaders import IndexLoader, Noise, RandomLoader, RandomSampler, Samples, Walker


def global_state() -> tuple[Any, ...]:
    name, key, *rest = np.random.get_state()
    return random.getstate(), name, key.tobytes(), tuple(rest), torch.get_rng_state().numpy().tobytes()


def disturb() -> None:
    random.seed(99)
    np.random.seed(98)
    torch.manual_seed(97)
    random.gauss(0, 1)  # leaves a cached second value behind, which is part of the state
    np.random.standard_normal()


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("loader", [RandomLoader, RandomSampler, Walker])
def test_making_batches_leaves_the_callers_state_as_it_was(make: Maker, loader: type, n: int) -> None:
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
