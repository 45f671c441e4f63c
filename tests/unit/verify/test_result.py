"""The verdict and the text of a row of `detaug.verify`."""

from __future__ import annotations

from detaug.pipeline.plan import BatchKey
from detaug.verification.result import Row
from detaug.verification.rows import DIFFERENT, EQUAL


def test_a_row_counts_the_batches_that_differ_and_names_the_first() -> None:
    row = Row.of("again", 9, [BatchKey(0, 3), BatchKey(1, 0), BatchKey(1, 2)])
    assert row.verdict == DIFFERENT
    assert row.detail == "3 of 9, first epoch 0, step 3"


def test_a_row_without_a_difference_is_equal() -> None:
    row = Row.of("again", 9, [])
    assert row.verdict == EQUAL
    assert row.batches == 9
    assert row.detail == ""
