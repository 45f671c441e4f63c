"""Where the seed comes from: the argument, the environment, or the operating system."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.support.augmenters import Maker
from tests.support.comparing import prints, take
from tests.support.loaders import Noise, RandomLoader


def first(make: Maker, **options: Any) -> list[str]:
    return prints(take(make(RandomLoader(), Noise(), 0, **options), 5))


def test_seed_given_is_the_seed(make: Maker) -> None:
    assert make(RandomLoader(), None, 0, seed=17).seed == 17
    assert list(make(RandomLoader(), None, 0, seed=[1, 2, 3]).seed) == [1, 2, 3]


def test_seed_that_is_drawn_is_logged_and_readable_and_gives_the_same_batches_again(
    make: Maker, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        augmenter = make(RandomLoader(), Noise(), 0)
    assert any(str(augmenter.seed) in record.getMessage() for record in caplog.records)
    assert any(record.name.startswith("detaug") for record in caplog.records)
    assert first(make, seed=augmenter.seed) == prints(take(augmenter, 5))


def test_two_drawn_seeds_differ(make: Maker) -> None:
    seeds = {str(make(RandomLoader(), None, 0).seed) for _ in range(20)}
    assert len(seeds) == 20


def test_old_style_seeds_are_a_seed_with_as_many_streams(make: Maker) -> None:
    seeds = [100, 101, 102]
    old = make(RandomLoader(), Noise(), 3, 2, seeds)
    new = make(RandomLoader(), Noise(), 0, seed=seeds, num_streams=3)
    assert prints(take(old, 9)) == prints(take(new, 9))
