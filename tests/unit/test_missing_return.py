"""Errors that advise on a missing return statement, and on a transform that takes no keywords."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from batchgenerators.transforms.abstract_transforms import Compose

from detaug import DeterministicAugmenter

ONES = [{"data": np.ones((2, 1, 4, 4), np.float32)}]


class Forgets:
    """A transform that changes the batch and returns None."""

    def __call__(self, **batch: Any) -> None:
        batch["data"] += 1


def forgets(**batch: Any) -> None:
    batch["data"] += 1


@pytest.mark.parametrize(
    ("transform", "name"),
    [
        (forgets, "forgets returned"),
        (Forgets(), "Forgets returned"),
        (Compose([dict, Forgets()]), "Compose returned"),
    ],
)
def test_transform_that_returns_none_is_named(transform: Any, name: str) -> None:
    with (
        DeterministicAugmenter(ONES, transform, 0, seed=1) as augmenter,
        pytest.raises(TypeError, match="is its return statement missing") as caught,
    ):
        next(augmenter)
    assert f"the transform {name}" in str(caught.value).splitlines()[0]
    with pytest.raises(TypeError, match="is its return statement missing"):
        augmenter.replay(0, 0)


def unchanged(data: Any) -> Any:
    return data


def test_batch_that_is_none_may_stay_none() -> None:
    with DeterministicAugmenter([None], unchanged, 0, seed=1) as augmenter:
        assert next(augmenter) is None


class TakesAnImage:
    """A transform that takes one argument, and not the keys of a batch."""

    def __call__(self, image: Any) -> Any:
        return image


ADVICE = ". A batch that is a dict is passed as keyword arguments"


@pytest.mark.parametrize(
    ("loader", "transform", "text"),
    [
        (ONES, TakesAnImage(), f"unexpected keyword argument 'data'{ADVICE}"),
        (ONES, Compose([TakesAnImage()]), f"unexpected keyword argument 'data'{ADVICE}"),
        ([{1: np.ones(3)}], unchanged, f"keywords must be strings{ADVICE}"),
    ],
)
def test_a_transform_that_takes_no_such_keywords_is_told_how_it_can_be_used(
    loader: Any, transform: Any, text: str
) -> None:
    with (
        DeterministicAugmenter(loader, transform, 0, seed=1) as augmenter,
        pytest.raises(TypeError) as raised,
    ):
        next(augmenter)
    assert text in str(raised.value)
    assert 'pass call="dict"' in str(raised.value)
