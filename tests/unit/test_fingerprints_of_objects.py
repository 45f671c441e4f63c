"""Objects of any class have a fingerprint: the run-time check, ledgers and verify compare by it."""

from __future__ import annotations

import array
import datetime
import decimal
import functools
import sys
import uuid
from collections import UserDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import SimpleITK as sitk
import torch
from PIL import Image

from detaug import fingerprint
from detaug.ledger.lines import batch_fingerprints as prints_of_ledger
from detaug.pipeline.batch_report import batch_fingerprints


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
    "a DataFrame": lambda n: pd.DataFrame({"age": [n, 5], "sex": ["f", None]}),
    "columns of a DataFrame": lambda n: pd.DataFrame({f"age {n}": [5]}),
    "index of a DataFrame": lambda n: pd.DataFrame({"age": [5]}, index=[n]),
    "a Series": lambda n: pd.Series([n]),
    "categories": lambda n: pd.Series(["f"]).astype(pd.CategoricalDtype(["f", str(n)])),
    "an index": lambda n: pd.MultiIndex.from_tuples([("a", n)]),
    "an array of objects": lambda n: np.array([{"age": n}, None], dtype=object),
    "an array of tables": lambda n: np.array([pd.DataFrame({"age": [n]}), None], dtype=object),
    "fields of objects": lambda n: np.array([(1, str(n))], [("case", int), ("name", object)]),
    "a dict's wrapper": lambda n: UserDict(age=n),
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
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fingerprints_depend_on_the_values_of_objects(
    form: str, wrap: Callable[[Any], Any]
) -> None:
    make = OBJECTS[form]
    for prints in (fingerprint, batch_fingerprints, prints_of_ledger):
        one, same, other = (prints({"data": wrap(make(n))}) for n in (1, 1, 2))
        assert one == same
        assert one != other


def test_a_table_is_known_by_its_values_and_not_by_its_blocks() -> None:
    whole = pd.DataFrame({"age": [1, 2], "size": [3, 4]})
    grown = pd.DataFrame({"age": [1, 2]})
    grown["size"] = [3, 4]
    assert fingerprint(whole) == fingerprint(grown)
    assert fingerprint(whole) != fingerprint(whole.astype({"age": "int32"}))
    assert fingerprint(whole) != fingerprint(whole[["size", "age"]])


class Node:
    def __init__(self, *others: Any) -> None:
        self.others = others


def test_objects_that_know_each_other_come_to_an_end() -> None:
    def ring(length: int) -> Node:
        nodes = [Node() for _ in range(length)]
        for node, following in zip(nodes, [*nodes[1:], nodes[0]], strict=True):
            node.others = (following, nodes[0])
        return nodes[0]

    assert fingerprint(ring(20)) == fingerprint(ring(20))
    assert fingerprint(ring(20)) != fingerprint(ring(21))


def test_what_has_nothing_to_compare_is_refused_by_its_place() -> None:
    for odd in (memoryview(b"x"), (number for number in range(3)), sys._getframe()):
        with pytest.raises(TypeError, match=r"batch\['x'\]\[1\]"):
            fingerprint({"x": [1, odd]})
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(TypeError, match="nested too deep"):
        fingerprint(endless)
