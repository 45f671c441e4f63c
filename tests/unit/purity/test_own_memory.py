"""A transform may write into all of a raw batch: none of its arrays is the loader's."""

from __future__ import annotations

from collections import OrderedDict, UserDict, defaultdict, deque, namedtuple
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
import torch

from detaug.pipeline.copying.array_copies import copy_arrays

DATA = np.zeros((4, 100))
TENSOR = torch.zeros(4, 100)
NESTED = {"inner": [np.zeros(3)]}


@pytest.mark.parametrize(
    "x", [DATA[0], DATA, TENSOR[1:], TENSOR, torch.from_numpy(DATA), TENSOR.numpy()]
)
def test_arrays_and_tensors_are_copied(x):
    copy_arrays({"x": x})["x"][...] = 7
    assert not DATA.any()
    assert not TENSOR.any()


def test_a_copied_array_keeps_the_order_of_its_memory():
    array = np.asfortranarray(np.arange(12.0).reshape(3, 4))
    copied = copy_arrays({"x": array})["x"]
    assert copied.flags.f_contiguous
    assert np.array_equal(copied, array)


def test_containers_in_others_are_looked_into():
    item = copy_arrays({"x": NESTED["inner"], "y": (NESTED["inner"][0], 3)})
    # An array at two places stays one.
    assert item["x"][0] is item["y"][0]
    item["x"][0][...] = 1
    assert not NESTED["inner"][0].any()


def test_read_only_arrays_are_left_as_they_are():
    fixed = DATA[1].view()
    fixed.flags.writeable = False
    assert copy_arrays({"x": fixed})["x"] is fixed


class Sample(dict):
    """A dict with an attribute."""

    name = ""


class Pair(NamedTuple):
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


Point = namedtuple("Point", "x y")
ROW = DATA[0]

CONTAINERS = {
    "OrderedDict": OrderedDict(x=ROW, y=3),
    "defaultdict": defaultdict(list, x=ROW, y=3),
    "a subclass of dict": Sample(x=ROW, y=3),
    "UserDict": UserDict(x=ROW, y=3),
    "deque": deque([ROW, 3], maxlen=2),
    "a named tuple": Pair(ROW),
    "namedtuple": Point(ROW, 3),
    "a result of torch's": torch.return_types.max((torch.from_numpy(ROW), torch.ones(1))),
    "a frozen data class": FrozenCase(ROW),
    "a data class with slots": SlottedCase(ROW),
    "one in another": OrderedDict(inner=[SlottedCase(ROW)]),
}


def first_array(value):
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value
    if hasattr(value, "x"):
        return value.x
    if isinstance(value, Mapping):
        value = value.values()
    return first_array(next(iter(value)))


@pytest.mark.parametrize("item", CONTAINERS.values(), ids=CONTAINERS)
def test_it_is_so_in_every_kind_of_container(item):
    copied = copy_arrays(item)
    assert type(copied) is type(item)
    first_array(copied)[...] = 7
    assert not DATA.any()


def test_attributes_of_a_container_and_its_factory_are_kept():
    item = Sample(x=DATA[0])
    item.name = "case"
    assert copy_arrays(item).name == "case"
    with_factory = defaultdict(list, x=DATA[0])
    assert copy_arrays(with_factory).default_factory is list


def test_other_objects_are_not_looked_into():
    class Handle:
        data = DATA

    item = {"handle": Handle(), "number": 3}
    assert copy_arrays(item) is item
