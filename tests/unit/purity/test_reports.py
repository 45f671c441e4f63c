"""What a report finds out about a single batch, with a bound for its work."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch

from detaug.pipeline.batch_report import batch_fingerprints, differing_keys, random_keys
from detaug.pipeline.copying.generators import new_generators

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


class Plain:
    """An object with one attribute."""

    def __init__(self, x: Any) -> None:
        self.x = x


def test_of_many_objects_a_bounded_number_is_searched_for_generators() -> None:
    many = [Plain(i) for i in range(8_000)]
    first = [np.random.default_rng(), *many]
    last = [*many, np.random.default_rng()]
    assert list(new_generators({"transform": first}, [])) == ["transform[0]"]
    assert new_generators({"transform": last}, []) == {}


def test_an_odd_object_hides_no_change_beside_it() -> None:
    odd = memoryview(b"has no parts that could be compared")
    one = {"case": [Plain(1), {"where": 1}, odd]}
    other = {"case": [Plain(1), {"where": 2}, odd]}
    assert batch_fingerprints({"meta": one}) != batch_fingerprints({"meta": other})
    reversed_one = dict(reversed(one.items()))
    assert batch_fingerprints({"meta": one}) == batch_fingerprints({"meta": reversed_one})


def test_a_number_that_is_by_chance_the_process_number_in_one_making_is_compared() -> None:
    first = batch_fingerprints({"index": os.getpid(), "pid": os.getpid()})
    same_index = {**first, "index": first["index"].removesuffix(" about the process")}
    next_pid = batch_fingerprints({"pid": os.getpid() + 1})["pid"]
    other_pid = {**first, "pid": f"{next_pid} about the process"}
    other_index = batch_fingerprints({"index": 1, "pid": os.getpid()})
    assert differing_keys(first, same_index, ()) == []
    assert differing_keys(first, other_pid, ()) == []
    assert differing_keys(first, other_index, ()) == ["index"]
