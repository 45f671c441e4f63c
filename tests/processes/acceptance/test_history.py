"""What an earlier batch did, in whichever process, leaves no trace in a later one."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

import detaug
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import RandomLoader, RandomSampler, Walker

NS = [0, 1, 2, 5]


class Counts:
    """A transform whose output tells how often this object was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, **batch: Any) -> dict[str, Any]:
        self.calls += 1
        return {"calls": self.calls, "draw": batch["python"][0]}


class ShufflesItsOwnList:
    """Shuffles a list of its own in place, as nnU-Net's cascade transforms do."""

    def __init__(self) -> None:
        self.channels = list(range(8))

    def __call__(self, **batch: Any) -> dict[str, Any]:
        np.random.shuffle(self.channels)
        return {"channels": list(self.channels)}


class CountingSampler(DataLoader):
    """Endless by its base class, which makes it stateless in batchgenerators' eyes, and yet it counts."""

    def __init__(self) -> None:
        super().__init__([1, 2, 3], 2, infinite=True)
        self.indices = [1, 2, 3]
        self.made = 0

    def generate_train_batch(self) -> dict[str, Any]:
        self.made += 1
        return {"made": self.made, "indices": self.get_indices()}


@pytest.mark.parametrize("transform", [Counts, ShufflesItsOwnList])
@pytest.mark.parametrize("loader", [RandomLoader, RandomSampler, Walker])
def test_transform_that_changes_itself_gives_the_same_batches_everywhere(
    make: Maker, transform: type, loader: type
) -> None:
    runs = []
    for n in NS:
        augmenter = make(loader(), transform(), n, seed=1, num_streams=4, batches_per_epoch=9)
        runs.append([prints(augmenter) for _ in range(2)])
        assert prints([augmenter.replay(1, 5)]) == [runs[-1][1][5]]
    assert all(run == runs[0] for run in runs)


@pytest.mark.parametrize("n", NS)
def test_stateless_loader_that_counts_is_found_out(make: Maker, n: int) -> None:
    with (
        make(CountingSampler(), None, n, seed=1, batches_per_epoch=20, check=100) as augmenter,
        pytest.raises(detaug.ReproducibilityError, match="'made'") as caught,
    ):
        take(augmenter, 21)
    assert caught.value.keys == ("made",)


def test_loader_that_counts_and_says_so_gives_the_same_batches_everywhere(make: Maker) -> None:
    runs = []
    for n in NS:
        augmenter = make(CountingSampler(), None, n, seed=1, stateless=False, num_streams=2)
        runs.append(prints(take(augmenter, 20)))
        assert prints([augmenter.replay(0, 13)]) == [runs[-1][13]]
    assert all(run == runs[0] for run in runs)


class Views(SlimDataLoaderBase):
    """Gives views of its own data, which a careless transform may write into."""

    def __init__(self) -> None:
        super().__init__(np.arange(40.0).reshape(10, 4), 1)

    def generate_train_batch(self) -> dict[str, Any]:
        i = random.randrange(10)
        return {"data": self._data[i : i + 1], "tensor": torch.from_numpy(self._data)[i]}


class WritesInPlace:
    def __call__(self, **batch: Any) -> dict[str, Any]:
        batch["data"] *= 2
        batch["tensor"] += 1
        return batch


class Reuses(SlimDataLoaderBase):
    """Fills one buffer over and over."""

    def __init__(self) -> None:
        super().__init__(np.zeros(5), 1)

    def generate_train_batch(self) -> dict[str, Any]:
        self._data[...] = detaug.current().step
        return {"data": self._data, "tensor": torch.from_numpy(self._data)}


@pytest.mark.parametrize("stateless", [True, False])
def test_transform_that_writes_into_the_loaders_data_is_harmless_or_refused(make: Maker, stateless: bool) -> None:
    outcomes: list[Any] = []
    for n in NS:
        augmenter = make(Views(), WritesInPlace(), n, seed=1, num_streams=4, stateless=stateless)
        try:
            outcomes.append(prints(take(augmenter, 30)))
        except Exception as error:
            outcomes.append(type(error))
    assert all(outcome == outcomes[0] for outcome in outcomes)


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
@pytest.mark.parametrize("stateless", [True, False])
def test_buffer_that_a_loader_fills_again_does_not_change_batches_given_out(
    make: Maker, n: int, stateless: bool
) -> None:
    batches = take(make(Reuses(), None, n, seed=1, stateless=stateless), 12)
    for step, batch in enumerate(batches):
        assert (batch["data"] == step).all()
        assert (batch["tensor"] == step).all()


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
def test_objects_handed_in_are_left_as_they_were(make: Maker, n: int) -> None:
    loader, transform = Walker(), Counts()
    augmenter = make(loader, transform, n, seed=1)
    take(augmenter, 5)
    augmenter.replay(0, 3)
    assert (loader._turn, loader.thread_id, transform.calls) == (0, 0, 0)
    assert not loader._position.any()


@pytest.mark.parametrize("n", [0, 2])
def test_loader_handed_in_half_way_goes_on_from_there(make: Maker, n: int) -> None:
    loader = Walker()
    loader._turn = 7
    batches = take(make(loader, None, n, seed=1, num_streams=2), 4)
    assert [batch["turn"] for batch in batches] == [8, 8, 9, 9]


@pytest.mark.parametrize("n", [0, 2])
def test_module_globals_and_class_attributes_do_not_carry_the_seed_on(make: Maker, n: int) -> None:
    # Two augmenters of one pipeline, the second made while the first is in mid-stream.
    first = make(Walker(), ShufflesItsOwnList(), n, seed=1)
    begun = prints(take(first, 7))
    second = make(Walker(), ShufflesItsOwnList(), n, seed=1)
    assert prints(take(second, 7)) == begun
