"""What an earlier batch did, in whichever process, leaves no trace in a later one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import Walker


class Counts:
    """A transform whose output tells how often this object was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, **batch: Any) -> dict[str, Any]:
        self.calls += 1
        return {"calls": self.calls, "draw": batch["python"][0]}


class Views(SlimDataLoaderBase):
    """Gives views of its own data, which a careless transform may write into."""

    def __init__(self) -> None:
        super().__init__(np.arange(40.0).reshape(10, 4), 1)

    def generate_train_batch(self) -> dict[str, Any]:
        i = random.randrange(10)
        return {"data": self._data[i : i + 1], "tensor": torch.from_numpy(self._data)[i]}


@pytest.mark.parametrize("n", [0, 2])
def test_what_the_user_does_to_a_batch_does_not_reach_the_loader(make: Maker, n: int) -> None:
    expected = prints(take(make(Views(), None, 2, seed=1), 60))
    augmenter = make(Views(), None, n, seed=1)
    got = []
    for _ in range(60):
        batch = next(augmenter)
        got += prints([batch])
        batch["data"][...] = -1
        batch["tensor"].zero_()
    assert got == expected


@pytest.mark.parametrize("n", [0, 2])
def test_items_of_a_list_do_not_remember_what_was_done_to_them(make: Maker, n: int) -> None:
    augmenter = make([np.zeros(3), np.ones(3)], None, n, seed=1, num_streams=1)
    for _ in range(3):
        batches = list(augmenter)
        assert [batch.tolist() for batch in batches] == [[0, 0, 0], [1, 1, 1]]
        for batch in batches:
            batch += 5


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("start", [True, False])
def test_loader_and_transform_are_used_as_they_were_handed_in(make: Maker, n: int, start: bool) -> None:
    loader, transform = Walker(), Counts()
    expected = prints(take(make(Walker(), Counts(), 0, seed=1), 10))
    augmenter = make(loader, transform, n, seed=1)
    if start:
        augmenter._start()
    loader._position += 1000
    loader._turn = 50
    transform.calls = 50
    assert prints(take(augmenter, 10)) == expected


@pytest.mark.parametrize("n", [0, 2])
def test_loader_handed_in_half_way_goes_on_from_there(make: Maker, n: int) -> None:
    loader = Walker()
    loader._turn = 7
    batches = take(make(loader, None, n, seed=1, num_streams=2), 4)
    assert [batch["turn"] for batch in batches] == [8, 8, 9, 9]
