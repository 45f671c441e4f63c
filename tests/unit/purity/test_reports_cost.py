"""A report reads arrays as arrays, and comes to an end whatever a batch is made of."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from detaug.purity.owned import made_late
from detaug.purity.reports import prints_of, random_keys

MANY = 8_000


class CountedTensor(torch.Tensor):
    """Its every operation is seen, as MONAI's and TorchIO's tensors see theirs."""

    operations = 0

    @classmethod
    def __torch_function__(cls, *arguments: Any) -> Any:
        CountedTensor.operations += 1
        return super().__torch_function__(*arguments)

    def __getitem__(self, index: Any) -> Any:
        CountedTensor.operations += 1
        return super().__getitem__(index)

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))


class Plain:
    def __init__(self, x: int) -> None:
        self.x = x


def calls_of(work: Callable[[], object]) -> int:
    """How many functions it calls, those in C as well."""
    calls = Counter[str]()

    def count(_: Any, event: str, __: Any) -> None:
        calls[event] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls["call"] + calls["c_call"]


def report(batch: Any) -> Any:
    return prints_of(batch), random_keys(batch)


@pytest.mark.parametrize("fill", [torch.rand, torch.zeros])
def test_a_subclass_of_tensors_is_read_as_a_tensor(fill: Any) -> None:
    operations = []
    for side in (4, 40):
        batch = {"image": fill(2, 1, side, side, side).as_subclass(CountedTensor)}
        CountedTensor.operations = 0
        assert report(batch)[1] == (("image",) if fill is torch.rand else ())
        operations.append(CountedTensor.operations)
    assert operations[0] == operations[1] < 30


LONG = {
    "numbers": lambda n: [float(i) for i in range(n)],
    "pairs": lambda n: [[i, str(i)] for i in range(n)],
    "a dict": lambda n: {i: (i, i) for i in range(n)},
    "objects": lambda n: [Plain(i) for i in range(n)],
    "what has no fingerprint, at the end": lambda n: [*range(n), object()],
    "a table": lambda n: pytest.importorskip("pandas").DataFrame({"x": np.arange(n), "name": ["a"] * n}),
}  # fmt: skip


@pytest.mark.parametrize("what", LONG)
def test_of_many_objects_a_bounded_number_is_searched_for_generators(what: str) -> None:
    long, longer = LONG[what](MANY), LONG[what](2 * MANY)
    made_late({"transform": long}, [])  # what a library does once, when it is first asked
    assert calls_of(lambda: made_late({"transform": longer}, [])) < 1.3 * calls_of(
        lambda: made_late({"transform": long}, [])
    )


class Node:
    def __init__(self, others: list[Node]) -> None:
        self.others = others


def test_objects_that_all_know_each_other_take_no_longer_than_others() -> None:
    nodes: list[Node] = []
    nodes += [Node(nodes) for _ in range(100)]
    assert calls_of(lambda: report({"graph": nodes})) < 3_000_000


def test_an_odd_object_hides_no_change_beside_it() -> None:
    one, other = ({"case": [Plain(1), {"where": x}], "odd": object()} for x in (1, 2))
    assert prints_of({"meta": one}) != prints_of({"meta": other})
    assert prints_of({"meta": one}) == prints_of({"meta": dict(reversed(one.items()))})


def test_what_contains_itself_is_reported_on() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert prints_of({"ring": ring}) == prints_of({"ring": ring})
