"""A raw batch that its loader still holds is copied; one that nobody else holds is not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from detaug.purity.own_memory import own

DATA, TENSOR = np.zeros((4, 100)), torch.zeros(4, 100)
CACHED = {"x": np.zeros(3)}
NESTED = {"inner": [np.zeros(3)]}


def two_views_of_a_new_array():
    both = np.zeros((2, 5))
    return {"x": both[0], "y": both[1]}


def the_same_array_twice():
    array = DATA[0]
    return {"x": array, "y": array}


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"x": np.zeros(3)},
        lambda: {"x": np.zeros((4, 3)).reshape(12)},
        lambda: {"x": torch.zeros(3)},
        lambda: {"x": [np.zeros(3), {"z": np.zeros(2)}], "y": 3},
        lambda: [np.zeros(3)],
        lambda: np.zeros(3),
        two_views_of_a_new_array,
    ],
)
def test_what_nobody_else_holds_is_passed_on(make):
    item = make()
    before = id(item)
    item = own(item)
    assert id(item) == before


@pytest.mark.parametrize(
    "make",
    [
        lambda: {"x": DATA[0]},
        lambda: {"x": DATA},
        lambda: {"x": TENSOR[1:]},
        lambda: {"x": TENSOR},
        lambda: {"x": torch.from_numpy(DATA)},
        lambda: {"x": TENSOR.numpy()},
        lambda: CACHED,
        lambda: {"x": NESTED["inner"][0]},
        the_same_array_twice,
    ],
)
def test_what_something_else_holds_is_copied(make):
    item = make()
    item = own(item)
    item["x"][...] = 7
    assert not DATA.any()
    assert not TENSOR.any()
    assert not CACHED["x"].any()
    assert not NESTED["inner"][0].any()


def test_containers_that_are_held_are_looked_into():
    item = {"x": NESTED["inner"], "y": (CACHED["x"], 3)}
    item = own(item)
    item["x"][0][...] = 1
    item["y"][0][...] = 1
    assert not NESTED["inner"][0].any()
    assert not CACHED["x"].any()


def test_the_same_array_twice_stays_the_same_array():
    item = the_same_array_twice()
    item = own(item)
    assert item["x"] is item["y"]


def test_read_only_arrays_are_left_as_they_are():
    fixed = DATA[1].view()
    fixed.flags.writeable = False
    item = {"x": fixed}
    item = own(item)
    assert np.shares_memory(item["x"], DATA)
