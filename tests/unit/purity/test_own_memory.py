"""A raw batch that its loader still holds is copied; one that nobody else holds is not."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch

from detaug.purity.own_memory import own

DATA, TENSOR = np.zeros((4, 100)), torch.zeros(4, 100)
CACHED = {"x": np.zeros(3)}
NESTED = {"inner": [np.zeros(3)]}


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


class Sample(dict):
    """With an attribute of its own."""

    name = ""


class Items(list):
    pass


class Pair(NamedTuple):
    x: np.ndarray
    y: int = 3


class Named(Pair):
    """With a ``__dict__``."""


@dataclass
class Case:
    x: np.ndarray
    y: int = 3


@dataclass(frozen=True)
class FrozenCase:
    x: np.ndarray
    y: int = 3


@dataclass(slots=True)
class SlottedCase:
    x: np.ndarray
    y: int = 3


CONTAINERS = {
    "OrderedDict": lambda x: OrderedDict(x=x, y=3),
    "defaultdict": lambda x: defaultdict(list, x=x, y=3),
    "a subclass of dict": lambda x: Sample(x=x, y=3),
    "UserDict": lambda x: UserDict(x=x, y=3),
    "a subclass of list": lambda x: Items([x, 3]),
    "deque": lambda x: deque([x, 3], maxlen=2),
    "a named tuple": lambda x: Pair(x),
    "a subclass of a named tuple": lambda x: Named(x),
    "namedtuple": lambda x: namedtuple("Point", "x y")(x, 3),
    "a result of torch's": lambda x: torch.return_types.max((x, torch.ones(1))),
    "a data class": lambda x: Case(x),
    "a frozen data class": lambda x: FrozenCase(x),
    "a data class with slots": lambda x: SlottedCase(x),
    "one in another": lambda x: OrderedDict(inner=[Case(x)]),
}


def first_array(value):
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value
    if hasattr(value, "x"):
        return value.x
    return first_array(next(iter(value.values() if isinstance(value, Mapping) else value)))


@pytest.mark.parametrize("what", CONTAINERS)
def test_it_is_so_in_every_kind_of_container(what):
    make = CONTAINERS[what]
    as_tensor = "torch" in what
    item = make(TENSOR[0] if as_tensor else DATA[0])
    kind = type(item)
    item = own(item)
    assert type(item) is kind
    first_array(item)[...] = 7
    assert not DATA.any()
    assert not TENSOR.any()
    fresh = make(torch.zeros(3) if as_tensor else np.zeros(3))
    before = id(fresh)
    fresh = own(fresh)
    assert id(fresh) == before


def test_attributes_of_a_container_and_its_factory_are_kept():
    item, other = Sample(x=DATA[0]), defaultdict(list, x=DATA[0])
    item.name = "case"
    item, other = own(item), own(other)
    assert item.name == "case"
    assert other.default_factory is list


def test_other_objects_are_not_looked_into():
    class Handle:
        data = DATA

    handle = Handle()
    assert own({"x": np.zeros(1), "handle": handle})["handle"] is handle
