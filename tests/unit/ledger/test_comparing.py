"""The differences between the headers of two ledgers."""

from __future__ import annotations

from typing import Any

from detaug.ledger.comparing import header_differences
from detaug.ledger.header import header


def header_of(**facts: Any) -> dict[str, Any]:
    return header([], {}, seed=1, name="train", num_streams=1, **facts)


def test_the_cases_of_an_nnunet_training_that_differ_are_named() -> None:
    one = header_of(data={"brain_001": "0f", "brain_002": "1e", "brain_003": "2d"})
    other = header_of(data={"brain_001": "0f", "brain_002": "ff", "brain_004": "3c"})
    assert header_differences(one, other) == [
        ("data.brain_002", "1e", "ff"),
        ("data.brain_003", "2d", "absent"),
        ("data.brain_004", "absent", "3c"),
    ]
