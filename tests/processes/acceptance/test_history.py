"""What an earlier batch did, in whichever process, leaves no trace in a later one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import Walker


class Counts:
    """A transform whose output tells how often this object was called."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, **batch: Any) -> dict[str, Any]:
        self.calls += 1
        return {"calls": self.calls, "draw": batch["python"][0]}


@pytest.mark.parametrize("n", [0, 2])
def test_items_of_a_list_do_not_remember_what_was_done_to_them(make: Maker, n: int) -> None:
    augmenter = make([np.zeros(3), np.ones(3)], None, n, seed=1, num_streams=1)
    for _ in range(3):
        batches = list(augmenter)
        assert [batch.tolist() for batch in batches] == [[0, 0, 0], [1, 1, 1]]
        for batch in batches:
            batch += 5


@pytest.mark.parametrize("n", [0, 2])
@pytest.mark.parametrize("start", [True, False])
def test_loader_and_transform_are_used_as_they_were_handed_in(make: Maker, n: int, start: bool) -> None:
    loader, transform = Walker(), Counts()
    expected = prints(take(make(Walker(), Counts(), 0, seed=1), 10))
    augmenter = make(loader, transform, n, seed=1)
    if start:
        augmenter._start()
    loader._position += 1000
    loader._turn = 50
    transform.calls = 50
    assert prints(take(augmenter, 10)) == expected
