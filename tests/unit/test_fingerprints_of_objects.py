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
from detaug.ledger.lines import batch_fingerprints as ledger_fingerprints
from detaug.pipeline.batch_report import batch_fingerprints


class InSlots:
    """An object whose attribute is in a slot."""

    __slots__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value = value


def a_time(n: int) -> Any:
    return datetime.datetime(2020, 1, n)


def a_uuid(n: int) -> Any:
    return uuid.UUID(int=n)


def an_array_of_the_standard_library(n: int) -> Any:
    return array.array("d", [n])


def a_deque(n: int) -> Any:
    return deque([n])


def a_class(n: int) -> Any:
    return int if n == 1 else float


def a_partial(n: int) -> Any:
    return functools.partial(max, n)


def a_data_frame(n: int) -> Any:
    return pd.DataFrame({"age": [n, 5], "sex": ["f", None]})


def columns_of_a_data_frame(n: int) -> Any:
    return pd.DataFrame({f"age {n}": [5]})


def index_of_a_data_frame(n: int) -> Any:
    return pd.DataFrame({"age": [5]}, index=[n])


def a_series(n: int) -> Any:
    return pd.Series([n])


def categories(n: int) -> Any:
    kind = pd.CategoricalDtype(["f", str(n)])
    return pd.Series(["f"]).astype(kind)


def an_index(n: int) -> Any:
    return pd.MultiIndex.from_tuples([("a", n)])


def an_array_of_objects(n: int) -> Any:
    return np.array([{"age": n}, None], dtype=object)


def an_array_of_tables(n: int) -> Any:
    return np.array([pd.DataFrame({"age": [n]}), None], dtype=object)


def fields_of_objects(n: int) -> Any:
    return np.array([(1, str(n))], [("case", int), ("name", object)])


def a_dicts_wrapper(n: int) -> Any:
    return UserDict(age=n)


def a_picture(n: int) -> Any:
    return Image.new("L", (2, 2), n)


def an_itk_image(n: int) -> Any:
    return sitk.GetImageFromArray(np.full((2, 2), n))


def long_doubles(n: int) -> Any:
    return 1 + np.full(2, n) * np.finfo(np.longdouble).eps


def complex_long_doubles(n: int) -> Any:
    return np.full(2, n * 1j, np.clongdouble)


def fields_of_long_doubles(n: int) -> Any:
    return np.full(2, n, [("x", np.longdouble)])


def a_sparse_tensor(n: int) -> Any:
    return (torch.eye(2) * n).to_sparse()


def a_compressed_tensor(n: int) -> Any:
    return (torch.eye(2) * n).to_sparse_csr()


def a_quantized_tensor(n: int) -> Any:
    return torch.quantize_per_tensor(torch.full((2,), float(n)), 0.1, 0, torch.quint8)


def a_nested_tensor(n: int) -> Any:
    return torch.nested.nested_tensor([torch.full((2,), float(n))])


OBJECTS: list[Callable[[int], Any]] = [
    a_class,
    a_compressed_tensor,
    a_data_frame,
    a_deque,
    a_dicts_wrapper,
    a_nested_tensor,
    a_partial,
    a_picture,
    a_quantized_tensor,
    a_series,
    a_sparse_tensor,
    a_time,
    a_uuid,
    an_array_of_objects,
    an_array_of_tables,
    an_array_of_the_standard_library,
    an_index,
    an_itk_image,
    categories,
    columns_of_a_data_frame,
    complex_long_doubles,
    decimal.Decimal,
    fields_of_long_doubles,
    fields_of_objects,
    index_of_a_data_frame,
    InSlots,
    long_doubles,
    np.random.default_rng,
]


def alone(value: Any) -> Any:
    return {"data": value}


def in_a_list(value: Any) -> Any:
    return {"data": [{"case": value}]}


@pytest.mark.parametrize("make", OBJECTS)
@pytest.mark.parametrize("batch_of", [alone, in_a_list])
@pytest.mark.parametrize("fingerprint_of", [fingerprint, batch_fingerprints, ledger_fingerprints])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_fingerprints_depend_on_the_values_of_objects(
    make: Callable[[int], Any],
    batch_of: Callable[[Any], Any],
    fingerprint_of: Callable[[Any], Any],
) -> None:
    one = fingerprint_of(batch_of(make(1)))
    assert fingerprint_of(batch_of(make(1))) == one
    assert fingerprint_of(batch_of(make(2))) != one


def test_a_table_is_known_by_its_values_and_not_by_its_blocks() -> None:
    whole = pd.DataFrame({"age": [1, 2], "size": [3, 4]})
    grown = pd.DataFrame({"age": [1, 2]})
    grown["size"] = [3, 4]
    assert fingerprint(whole) == fingerprint(grown)
    assert fingerprint(whole) != fingerprint(whole.astype({"age": "int32"}))
    assert fingerprint(whole) != fingerprint(whole[["size", "age"]])


class Node:
    """An object with references to others."""

    def __init__(self, *others: Any) -> None:
        self.others = others


def ring(length: int) -> Node:
    """Return a node of a ring, each of which knows the next one and the first one."""
    nodes = [Node() for _ in range(length)]
    first = nodes[0]
    for node, following in zip(nodes, [*nodes[1:], first], strict=True):
        node.others = (following, first)
    return first


def test_objects_that_know_each_other_come_to_an_end() -> None:
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
