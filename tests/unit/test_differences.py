"""The first event in which two runs differ."""

from __future__ import annotations

from typing import Any

import pytest

from detaug.objects.differences import first_different_event

A = ("output of a", "digest 1")
B = ("output of b", "digest 2")
C = ("output of c", "digest 3")
OTHER_B = ("output of b", "digest 4")

#: Name -> (events of one run, events of the other run, the first difference).
RUNS: dict[str, tuple[list[Any], list[Any], Any]] = {
    "equal": ([A, B], [A, B], None),
    "another value": ([A, B, C], [A, OTHER_B, C], B),
    "the other run is longer": ([A], [A, B], ("only one has output of b", "digest 2")),
    "the first run is longer": ([A, B], [A], ("only one has output of b", "digest 2")),
    "the other run has one between": (
        [A, C],
        [A, B, C],
        ("only one has output of b", "digest 2"),
    ),
    "the first run has one between": (
        [A, B, C],
        [A, C],
        ("only one has output of b", "digest 2"),
    ),
}


@pytest.mark.parametrize(("one", "other", "expected"), RUNS.values(), ids=RUNS)
def test_the_first_event_that_differs_is_the_one_that_only_one_run_has(
    one: list[Any], other: list[Any], expected: Any
) -> None:
    assert first_different_event(one, other) == expected
