"""What a pipeline declares itself to be."""

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


def lines(**changes):
    arguments = {"data": list(range(1000)), "batch_size": 2, **changes}
    return describe(Loader(**arguments), "loader")


def test_equal_arguments_are_equal_and_state_does_not_count():
    loader = Loader(list(range(1000)), 2)
    before = describe(loader, "loader")
    loader.position = 17
    loader.cache = {}
    assert describe(loader, "loader") == before == lines()


def test_a_class_a_parameter_or_the_amount_of_data_makes_another_pipeline():
    class Other(Loader):
        pass

    assert describe(Other(list(range(1000)), 2), "loader") != lines()
    for change in ({"batch_size": 3}, {"order": (1, 0)}, {"data": list(range(999))}):
        assert lines(**change) != lines()


def test_the_difference_is_shown():
    text = differences(lines(batch_size=3), lines())
    assert text == "loader.batch_size: here 3, in the state 2"


def test_nested_transforms_and_partials_are_looked_into():
    def pipeline(p):
        return Compose([MirrorTransform(axes=(0, 1)), GaussianNoiseTransform(p_per_sample=p)])

    assert describe(pipeline(0.1), "t") == describe(pipeline(0.1), "t")
    assert "p_per_sample: here 0.2, in the state 0.1" in differences(
        describe(pipeline(0.2), "t"), describe(pipeline(0.1), "t")
    )
    assert describe(functools.partial(max, 1), "t") != describe(functools.partial(max, 2), "t")


class Holds:
    def __init__(self, value):
        self.value = value


class Address:
    """Its default repr is its address."""


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
    "long lists of texts": (
        [f"case_{i}" for i in range(100)],
        [f"case_{i}" for i in range(99)] + ["x"],
    ),
    "long dicts": ({i: [i] for i in range(100)}, {i: [i if i < 99 else 0] for i in range(100)}),
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


@pytest.mark.parametrize("what", PAIRS)
def test_a_difference_shows_and_a_copy_is_described_alike(what):
    one, other = (describe(Holds(value), "x") for value in PAIRS[what])
    assert one != other
    assert differences(one, other).startswith("x.value")
    for value, lines in zip(PAIRS[what], (one, other), strict=True):
        assert describe(Holds(copy.deepcopy(value)), "x") == lines
        assert not any(" at 0x" in line or "\n" in line for line in lines)


ALIKE = {
    "keys known by their address": lambda: {Address(): 1, "a": Address()},
    "many keys known by their address": lambda: {Address(): i for i in range(100)},
    "sets of objects": lambda: {Address(), Address()},
    "tuples of objects as keys": lambda: {(Address(), 1): 2},
    "ends of a slice": lambda: slice(Address(), 3),
    "object arrays of objects": lambda: np.array([Address(), None]),
    "generators": lambda: [np.random.default_rng(), np.random.RandomState(), torch.Generator(), random.Random(),
                           np.random.SeedSequence(), np.random.PCG64()],
    "memory maps": lambda: np.memmap(tempfile.TemporaryFile(), np.uint8, "w+", shape=100),
    "getters of objects": lambda: operator.methodcaller("m", Address()),
    "locks": threading.Lock,
    "subclasses with a repr of their own": lambda: type("S", (str,), {"__repr__": object.__repr__})("a"),
}  # fmt: skip


@pytest.mark.parametrize("what", ALIKE)
def test_nothing_of_one_process_alone_enters(what):
    one, other = ALIKE[what](), ALIKE[what]()
    lines = describe(Holds(one), "x")
    assert lines == describe(Holds(other), "x")
    assert not any(" at 0x" in line for line in lines)


def test_the_order_of_a_set_does_not_count_that_of_a_dict_does():
    assert describe(Holds({"a": 1, "b": 2}), "x") != describe(Holds({"b": 2, "a": 1}), "x")
    assert "order" in differences(describe({"a": 1, "b": 2}, "x"), describe({"b": 2, "a": 1}, "x"))
    one, other = set(), set()
    for i in range(100):
        one.add(64 * i)
        other.add(64 * (99 - i))
    assert describe(Holds(one), "x") == describe(Holds(other), "x")


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
    assert len(describe(Holds([shared, nested]), "x")) < 3000


def test_a_description_stays_short_whatever_it_describes():
    huge = {
        "texts": [f"case_{i}" for i in range(100_000)],
        "dicts": [
            {"image": Path(f"/data/{i}"), "label": Path(f"/data/{i}")} for i in range(20_000)
        ],
        "arrays": [np.zeros(100_000)] * 1000,
        "wide": [[[Holds(i) for i in range(40)] for _ in range(40)] for _ in range(40)],
    }
    loader = Loader(huge, 2)
    lines = describe(loader, "loader")
    assert len(lines) < 2500
    assert lines == describe(loader, "loader")
    assert sum(map(len, lines)) < 200_000


def test_a_description_of_more_lines_than_are_kept_still_tells_them_apart():
    def many(last):
        return [[[Holds(i) for i in range(20)] for _ in range(20)] for _ in range(8)] + [last]

    assert describe(many(1), "x") == describe(many(1), "x")
    assert "(rest)" in differences(describe(many(1), "x"), describe(many(2), "x"))


def test_a_memory_map_is_not_read(tmp_path):
    file = tmp_path / "a.bin"
    file.write_bytes(bytes(8000))
    mapped = np.memmap(file, np.uint8, "r")
    before = describe(Holds([mapped, mapped[5:]]), "x")
    file.write_bytes(b"\1" * 8000)
    assert describe(Holds([mapped, mapped[5:]]), "x") == before


def test_text_of_a_foreign_state_is_shown_escaped() -> None:
    said = differences(["transform = None"], ["transform = \x1b[32mequal\n", "\x9b2K = 1"])
    assert said.isprintable()
    assert "in the state \\x1b[32mequal\\n" in said
