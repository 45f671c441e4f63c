"""The description of a pipeline, by which a state dict recognizes it."""

from __future__ import annotations

import copy
import dataclasses
import datetime
import functools
import operator
import random
import re
import tempfile
import threading
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from batchgenerators.transforms.abstract_transforms import Compose
from batchgenerators.transforms.noise_transforms import GaussianNoiseTransform
from batchgenerators.transforms.spatial_transforms import MirrorTransform

from detaug.objects.description import describe, differences


class Loader:
    def __init__(self, data, batch_size, order=(0, 1)):
        self._data = data
        self.batch_size = batch_size
        self.order = order
        self.position = 0


class OtherLoader(Loader):
    pass


def lines(**changes):
    arguments = {"data": list(range(1000)), "batch_size": 2, **changes}
    return describe(Loader(**arguments), "loader")


def test_equal_arguments_are_equal_and_state_does_not_count():
    loader = Loader(list(range(1000)), 2)
    description = describe(loader, "loader")
    assert description == lines()
    loader.position = 17
    loader.cache = {}
    assert describe(loader, "loader") == description


def test_a_class_a_parameter_or_the_amount_of_data_makes_another_pipeline():
    assert describe(OtherLoader(list(range(1000)), 2), "loader") != lines()
    assert lines(batch_size=3) != lines()
    assert lines(order=(1, 0)) != lines()
    assert lines(data=list(range(999))) != lines()


def test_the_difference_is_shown():
    text = differences(lines(batch_size=3), lines())
    assert text == "loader.batch_size: here 3, in the state 2"


def test_nested_transforms_and_partials_are_looked_into():
    def pipeline(p):
        noise = GaussianNoiseTransform(p_per_sample=p)
        return describe(Compose([MirrorTransform(axes=(0, 1)), noise]), "t")

    assert pipeline(0.1) == pipeline(0.1)
    difference = differences(pipeline(0.2), pipeline(0.1))
    assert "p_per_sample: here 0.2, in the state 0.1" in difference
    one = functools.partial(max, 1)
    other = functools.partial(max, 2)
    assert describe(one, "t") != describe(other, "t")


class Holds:
    def __init__(self, value):
        self.value = value


class Address:
    """An object whose repr is the default one, with its address."""


class Point(NamedTuple):
    x: int
    y: Any


@dataclasses.dataclass
class Settings:
    size: int
    names: list


@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    size: int


class Method:
    def __init__(self, sigma):
        self.sigma = sigma

    def apply(self):
        pass


def array(n, change=None):
    result = np.arange(n, dtype=np.float32)
    if change is not None:
        result[change] += 1
    return result


TEXTS = [f"case_{i}" for i in range(100)]
NUMBERS = {i: [i] for i in range(100)}
PAIRS = {
    "paths": (Path("/data/a"), Path("/data/b")),
    "sets": ({"a", "b"}, {"a", "c"}),
    "set and frozenset": ({1}, frozenset({1})),
    "long sets": (set(range(1000)), {*range(999), 5000}),
    "ranges": (range(10), range(1, 10)),
    "range and list": (range(3), [0, 1, 2]),
    "slices": (slice(1, 2), slice(1, 3)),
    "dates": (datetime.date(2020, 1, 1), datetime.date(2020, 1, 2)),
    "patterns": (re.compile("a" * 300), re.compile("a" * 299 + "b")),
    "dataclasses": (Settings(1, [Path("a")]), Settings(1, [Path("b")])),
    "dataclasses with slots": (Slotted(1), Slotted(2)),
    "named tuples": (Point(1, 2), Point(1, 3)),
    "classes": (np.float32, np.float64),
    "torch's dtypes": (torch.float32, torch.float64),
    "devices": (torch.device("cpu"), torch.device("meta")),
    "long lists": (list(range(100)), [*range(98), 99, 98]),
    "long lists of texts": (TEXTS, [*TEXTS[:-1], "x"]),
    "long dicts": (NUMBERS, {**NUMBERS, 99: [0]}),
    "keys": ({(1, "a"): 1}, {(1, "b"): 1}),
    "deep lists": ([[[[[[[[[[1]]]]]]]]]], [[[[[[[[[[2]]]]]]]]]]),
    "small arrays": (array(5), array(5, 2)),
    "arrays": (array(5000), array(5000, 4321)),
    "the ends of large arrays": (array(1_000_000), array(1_000_000, -1)),
    "object arrays": (np.array([Path("a"), None]), np.array([Path("b"), None])),
    "masked arrays": (np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0])),
    "tensors": (torch.arange(5000), torch.arange(5000) + 1),
    "bfloat16 tensors": (
        torch.zeros(5000, dtype=torch.bfloat16),
        torch.ones(5000, dtype=torch.bfloat16),
    ),
    "long texts": ("a" * 5000, "a" * 4999 + "b"),
    "what a method belongs to": (Method(1).apply, Method(2).apply),
    "arguments of getters": (operator.itemgetter(1), operator.itemgetter(2)),
    "huge ints": (10**5000, 10**5000 + 1),
}


def described(value):
    return describe(Holds(value), "x")


def assert_no_address(lines):
    for line in lines:
        assert " at 0x" not in line


@pytest.mark.parametrize(("one", "other"), PAIRS.values(), ids=PAIRS)
def test_a_difference_shows(one, other):
    lines = described(one)
    other_lines = described(other)
    assert lines != other_lines
    assert differences(lines, other_lines).startswith("x.value")


@pytest.mark.parametrize("pair", PAIRS.values(), ids=PAIRS)
def test_a_copy_is_described_alike(pair):
    for value in pair:
        lines = described(value)
        assert described(copy.deepcopy(value)) == lines
        assert_no_address(lines)
        assert "\n" not in "".join(lines)


def keys_known_by_their_address():
    return {Address(): 1, "a": Address()}


def many_keys_known_by_their_address():
    return {Address(): i for i in range(100)}


def a_set_of_objects():
    return {Address(), Address()}


def tuples_of_objects_as_keys():
    return {(Address(), 1): 2}


def the_ends_of_a_slice():
    return slice(Address(), 3)


def an_array_of_objects():
    return np.array([Address(), None])


def generators():
    return [
        np.random.default_rng(),
        np.random.RandomState(),
        torch.Generator(),
        random.Random(),
        np.random.SeedSequence(),
        np.random.PCG64(),
    ]


def a_memory_map():
    return np.memmap(tempfile.TemporaryFile(), np.uint8, "w+", shape=100)


def a_getter_of_objects():
    return operator.methodcaller("m", Address())


def a_text_with_a_repr_of_its_own():
    kind = type("S", (str,), {"__repr__": object.__repr__})
    return kind("a")


ALIKE = [
    a_getter_of_objects,
    a_memory_map,
    a_set_of_objects,
    a_text_with_a_repr_of_its_own,
    an_array_of_objects,
    generators,
    keys_known_by_their_address,
    many_keys_known_by_their_address,
    the_ends_of_a_slice,
    threading.Lock,
    tuples_of_objects_as_keys,
]


@pytest.mark.parametrize("make", ALIKE)
def test_nothing_of_one_process_alone_enters(make):
    lines = described(make())
    assert described(make()) == lines
    assert_no_address(lines)


def test_the_order_of_a_set_does_not_count_that_of_a_dict_does():
    one = described({"a": 1, "b": 2})
    other = described({"b": 2, "a": 1})
    assert "order" in differences(one, other)
    numbers = range(0, 6400, 64)
    rising = set()
    falling = set()
    for number in numbers:
        rising.add(number)
    for number in reversed(numbers):
        falling.add(number)
    assert list(rising) != list(falling)
    assert described(rising) == described(falling)


def test_what_holds_itself_and_what_is_shared_a_million_times_ends():
    ring = []
    ring.append(ring)
    loop = Holds(None)
    loop.value = {"back": [loop], "ring": ring}
    assert describe(loop, "x") == describe(copy.deepcopy(loop), "x")
    shared = [1]
    nested = (1,)
    for _ in range(60):
        shared = [shared, shared]
        nested = (nested, nested)
    assert len(described([shared, nested])) < 3000


def case(number):
    folder = Path(f"/data/{number}")
    return {"image": folder, "label": folder}


def objects(*lengths):
    """Return nested lists of these lengths that hold objects."""
    length, *inner = lengths
    if not inner:
        return [Holds(number) for number in range(length)]
    return [objects(*inner) for _ in range(length)]


def test_a_description_stays_short_whatever_it_describes():
    huge = {
        "texts": [f"case_{i}" for i in range(20_000)],
        "dicts": [case(i) for i in range(5_000)],
        "arrays": [np.zeros(100_000)] * 1000,
        "wide": objects(40, 40, 40),
    }
    loader = Loader(huge, 2)
    lines = describe(loader, "loader")
    assert len(lines) < 2500
    assert lines == describe(loader, "loader")
    num_characters = sum(len(line) for line in lines)
    assert num_characters < 200_000


def test_a_description_of_more_lines_than_are_kept_still_tells_them_apart():
    def many(last):
        return describe([*objects(8, 20, 20), last], "x")

    assert many(1) == many(1)
    assert "(rest)" in differences(many(1), many(2))


def test_a_memory_map_is_not_read(tmp_path):
    file = tmp_path / "a.bin"
    file.write_bytes(bytes(8000))
    mapped = np.memmap(file, np.uint8, "r")
    description = described([mapped, mapped[5:]])
    file.write_bytes(b"\1" * 8000)
    assert described([mapped, mapped[5:]]) == description


def test_text_of_a_foreign_state_is_shown_escaped() -> None:
    text = differences(["transform = None"], ["transform = \x1b[32mequal\n", "\x9b2K = 1"])
    assert text.isprintable()
    assert "in the state \\x1b[32mequal\\n" in text
