"""The search for a line ends in time, and what is known by then is told."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from detaug.cli import main
from detaug.verification import verify
from tests.processes.verify import pipelines

QUICK: dict[str, Any] = {"batches": 3, "processes": [1], "start_methods": ["fork"], "hash_seeds": ()}


class Slow:
    """Many lines for every batch, and two attributes that are carried from one to the next."""

    def __init__(self) -> None:
        self.sums = np.zeros(12)
        self.calls = 0

    def __call__(self, **batch: Any) -> Any:
        self.calls += 1
        total = 0
        for number in range(4_000):
            total = (total * 31 + number) % 10_007
        time.sleep(0.02)
        self.sums += batch["data"].mean() + total
        batch["data"] = batch["data"] + Slow.offset + self.sums.mean()
        Slow.offset += 1.0  # what no copy puts back
        return batch

    offset = 0.0


def slow() -> Any:
    return pipelines.Loader(), pipelines.Compose([pipelines.Noise(), Slow()])


def test_stopped_search_tells_the_row_and_the_transform() -> None:
    result = verify(slow, **QUICK, search_seconds=0.8)
    assert not result.ok
    text = str(result).replace("\n", " ")
    assert "was stopped" in text
    assert any("search_seconds" in note and "after other batches" in note for note in result.notes)
    assert result.cause is not None
    assert "depends on which batches were made before" in result.cause.what or "Slow.offset" in result.cause.what
    assert "Slow" in str(result.cause.difference)
    assert Slow.offset == 0.0  # as it was before


@pytest.mark.slow
def test_search_without_limit_finds_the_line() -> None:
    result = verify(slow, **QUICK, search_seconds=None)
    assert result.cause is not None
    assert "Slow.offset += 1.0" in result.cause.what
    assert not any("stopped" in note for note in result.notes)


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), "soon"])
def test_limit_that_cannot_be_is_refused(seconds: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="search_seconds"):
        verify(slow, **QUICK, search_seconds=seconds)


def test_limit_is_an_option_of_the_command() -> None:
    from click.testing import CliRunner

    done = CliRunner().invoke(main, ["verify", "tests.processes.verify.test_search:slow", "--seconds-for-cause", "0"])
    assert done.exit_code == 2
    assert "--seconds-for-cause" in done.output
