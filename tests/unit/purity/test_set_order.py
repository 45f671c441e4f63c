"""Texts that lie in the order of a set are found in what a pipeline holds, and no others."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from detaug.purity.set_order import in_a_sets_order

NAMES = [f"case_{number:04}" for number in range(700)]
HALVES = set(NAMES[:350]), set(NAMES[350:])


@pytest.mark.parametrize(
    "held",
    [
        list(set(NAMES)),
        tuple({name.encode() for name in NAMES}),
        {name: number for number, name in enumerate(frozenset(NAMES))},
        list(HALVES[0] | HALVES[1]),
        list(set(NAMES) - {"case_0003"}),
        np.array(list(set(NAMES))),
        list({Path(name) for name in NAMES}),
    ],
)
def test_what_was_made_of_a_set_is_found_by_its_path(held: Any) -> None:
    loader = SimpleNamespace(splits={"train": held})
    assert in_a_sets_order({"data_loader": loader}).startswith("data_loader.splits['train']")


def test_other_orders_are_no_sets() -> None:
    shuffled = NAMES.copy()
    random.Random(3).shuffle(shuffled)
    others = [
        NAMES,
        NAMES[::-1],
        shuffled,
        [*NAMES, *NAMES],
        list(set(NAMES))[:7],
        set(NAMES),
        list(range(99)),
        [*NAMES, 3],
    ]
    assert in_a_sets_order({"data_loader": SimpleNamespace(parts=others)}) == ""


class Loader:
    """The user's own class."""

    def __init__(self, names: list[str]) -> None:
        self._names = names


def test_private_attributes_count_where_the_object_is_the_users() -> None:
    names = list(set(NAMES))
    assert in_a_sets_order({"data_loader": Loader(names)}) == "data_loader._names"
    assert in_a_sets_order({"data_loader": SimpleNamespace(cases=names)}) == "data_loader.cases"
    assert in_a_sets_order({"data_loader": SimpleNamespace(_targets=names)}) == ""
    assert in_a_sets_order({"data_loader": SimpleNamespace(_parts=[Loader(names)])}) == ""
    assert (
        in_a_sets_order({"data_loader": [SimpleNamespace(loader=Loader(names))]})
        == "data_loader[0].loader._names"
    )
