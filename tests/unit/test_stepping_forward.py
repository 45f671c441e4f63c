"""A stream that is stepped forward for long says how far it is."""

from __future__ import annotations

import itertools
import re
from types import SimpleNamespace

import pytest

from detaug import DeterministicAugmenter
from detaug.pipeline import streams


class Counting:
    """It keeps state."""

    def __init__(self) -> None:
        self.number = -1

    def __iter__(self) -> Counting:
        return self

    def __next__(self) -> int:
        self.number += 1
        return self.number


def test_it_tells_after_twice_as_long_each_time(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(streams, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))
    augmenter = DeterministicAugmenter(Counting(), None, 0, seed=1, num_streams=1, check=False)
    state = augmenter.state_dict()
    augmenter.load_state_dict({**state, "step": 50, "taken": 50})
    assert next(augmenter) == 50
    said = [
        record.getMessage() for record in caplog.records if "stepped forward to epoch 0, turn 50" in record.getMessage()
    ]
    turns = [int(re.search(r"now at epoch 0, turn (\d+)", text)[1]) for text in said]  # type: ignore[index]
    assert turns == [6, 11, 21, 41]
