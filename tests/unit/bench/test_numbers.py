"""Numbers beside a benchmark's bars."""

from __future__ import annotations

import pytest

from detaug.bench.drawing import _number


@pytest.mark.parametrize(
    ("value", "text"), [(0.0123, "0.012"), (5.61, "5.6"), (99.4, "99"), (99.6, "100"), (104.4, "104")]
)
def test_two_digits_or_a_whole_number(value: float, text: str) -> None:
    assert _number(value) == text
