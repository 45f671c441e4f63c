"""What a report says of a batch by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from detaug.purity.reports import prints_of, random_keys, report_of

LONG = 10_000


def ramp(changed: int) -> np.ndarray:
    values = np.ones(LONG, np.float32)
    values[changed] = 2
    return values


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("changed", [1, 4095, 4096, LONG - 1])
def test_one_number_that_differs_makes_a_key_random_wherever_it_is(kind: Any, changed: int) -> None:
    assert random_keys({"data": kind(ramp(changed))}) == ("data",)


@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy])
@pytest.mark.parametrize("values", [np.ones(LONG, np.float32), np.ones(1), np.ones((0, 3)), np.arange(5)])
def test_equal_numbers_one_number_none_and_integers_are_not_random(kind: Any, values: np.ndarray) -> None:
    assert random_keys({"data": kind(values)}) == ()


def test_without_a_transform_the_report_says_of_the_batch_what_it_says_of_its_raw_form() -> None:
    batch = {"data": ramp(3), "case": "a"}
    told = prints_of(batch), random_keys(batch)
    assert report_of(*told, batch, transformed=False) == report_of(*told, batch)
