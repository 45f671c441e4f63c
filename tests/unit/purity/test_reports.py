"""What a report says of a batch by itself; and that it comes to an end whatever a batch is made of."""

from __future__ import annotations

import array
import datetime
import decimal
import functools
import uuid
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import SimpleITK as sitk
import torch
from PIL import Image

from detaug.purity.owned import made_late
from detaug.purity.reports import prints_of, random_keys

LONG = 10_000


def ramp(changed: int) -> np.ndarray:
    values = np.ones(LONG, np.float32)
    values[changed] = 2
    return values


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("changed", [1, LONG - 1])
def test_one_number_that_differs_makes_a_key_random_wherever_it_is(kind: Any, changed: int) -> None:
    assert random_keys({"data": kind(ramp(changed))}) == ("data",)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize(
    "values", [np.ones(LONG, np.float32), np.ones(1), np.ones((0, 3)), np.arange(5)]
)
def test_equal_numbers_one_number_none_and_integers_are_not_random(
    kind: Any, values: np.ndarray
) -> None:
    assert random_keys({"data": kind(values)}) == ()


class InSlots:
    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


OBJECTS: dict[str, Callable[[int], Any]] = {
    "a time": lambda n: datetime.datetime(2020, 1, n),
    "a decimal": decimal.Decimal,
    "a UUID": lambda n: uuid.UUID(int=n),
    "an array of the standard library": lambda n: array.array("d", [n]),
    "a deque": lambda n: deque([n]),
    "slots": InSlots,
    "a class": lambda n: (int, float)[n - 1],
    "a partial": lambda n: functools.partial(max, n),
    "a generator": np.random.default_rng,
    "a DataFrame": lambda n: pd.DataFrame({"age": [n, 5]}),
    "a Series": lambda n: pd.Series([n]),
    "a picture": lambda n: Image.new("L", (2, 2), n),
    "an ITK image": lambda n: sitk.GetImageFromArray(np.full((2, 2), n)),
    "long doubles": lambda n: 1 + np.full(2, n) * np.finfo(np.longdouble).eps,
    "complex long doubles": lambda n: np.full(2, n * 1j, np.clongdouble),
    "fields of long doubles": lambda n: np.full(2, n, [("x", np.longdouble)]),
    "sparse": lambda n: (torch.eye(2) * n).to_sparse(),
    "compressed": lambda n: (torch.eye(2) * n).to_sparse_csr(),
    "quantized": lambda n: torch.quantize_per_tensor(
        torch.full((2,), float(n)), 0.1, 0, torch.quint8
    ),
    "nested": lambda n: torch.nested.nested_tensor([torch.full((2,), float(n))]),
}


@pytest.mark.parametrize("form", OBJECTS)
@pytest.mark.parametrize(
    "wrap", [lambda value: value, lambda value: [{"case": value}]], ids=["alone", "in a list"]
)
def test_a_report_depends_on_the_values_of_objects(form: str, wrap: Callable[[Any], Any]) -> None:
    make = OBJECTS[form]
    one, same, other = (prints_of({"data": wrap(make(n))}) for n in (1, 1, 2))
    assert one == same
    assert one != other


class Plain:
    def __init__(self, x: Any) -> None:
        self.x = x


def test_of_many_objects_a_bounded_number_is_searched_for_generators() -> None:
    many = [Plain(i) for i in range(8_000)]
    assert list(made_late({"transform": [np.random.default_rng(), *many]}, [])) == ["transform[0]"]
    assert made_late({"transform": [*many, np.random.default_rng()]}, []) == {}


def test_objects_that_all_know_each_other_come_to_an_end() -> None:
    nodes: list[Plain] = []
    nodes += [Plain(nodes) for _ in range(100)]
    assert prints_of({"graph": nodes}) == prints_of({"graph": nodes})


def test_an_odd_object_hides_no_change_beside_it() -> None:
    one, other = ({"case": [Plain(1), {"where": x}], "odd": object()} for x in (1, 2))
    assert prints_of({"meta": one}) != prints_of({"meta": other})
    assert prints_of({"meta": one}) == prints_of({"meta": dict(reversed(one.items()))})
