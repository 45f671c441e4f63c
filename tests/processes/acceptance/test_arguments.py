"""The arguments: a wrong one gets an immediate, clear ValueError or TypeError; where the seed comes from."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from tests.support.augmenters import Maker, workers
from tests.support.comparing import prints, take
from tests.support.faults import Chatty
from tests.support.loaders import Noise, RandomLoader
from tests.support.processes import descendants

pytestmark = pytest.mark.timeout(60)

# options → a word that the message must hold
BAD: list[tuple[dict[str, Any], str]] = [
    ({"seed": -1}, "-1"),
    ({"seed": 1.5}, "1.5"),
    ({"seed": "7"}, "7"),
    ({"seed": [1, -2]}, "-2"),
    ({"seed": []}, "seed"),
    ({"seed": 1, "seeds": [1, 2]}, "seeds"),
    ({"seeds": [1]}, "seeds"),
    ({"seeds": [1, 2, 3]}, "seeds"),
    ({"seeds": [1, -2]}, "-2"),
    ({"seeds": [1, 2], "num_streams": 3}, "num_streams"),
    ({"num_processes": -1}, "num_processes"),
    ({"num_processes": 1.5}, "num_processes"),
    ({"num_processes": None}, "num_processes"),
    ({"num_cached": -1}, "num_cached"),
    ({"rank": 2, "world_size": 2}, "rank"),
    ({"rank": -1, "world_size": 2}, "rank"),
    ({"world_size": 0}, "world_size"),
    ({"rank": 0.5, "world_size": 2}, "rank"),
    ({"batches_per_epoch": 0}, "batches_per_epoch"),
    ({"batches_per_epoch": 2.5}, "batches_per_epoch"),
    ({"num_streams": 0}, "num_streams"),
    ({"num_streams": 1.0}, "num_streams"),
    ({"name": 3}, "name"),
    ({"version": 3.5}, "version"),
    ({"keep": "cache"}, "keep"),
    ({"tail": "repeat"}, "tail must be one of 'drop', 'pad', 'uneven', got 'repeat'"),
]


@pytest.mark.parametrize(("options", "word"), BAD, ids=lambda value: str(value))
def test_argument_is_refused_at_once_by_name(make: Maker, options: dict[str, Any], word: str) -> None:
    arguments = {"data_loader": RandomLoader(), "transform": None, "num_processes": 2, **options}
    with pytest.raises((ValueError, TypeError), match=word):
        make(**arguments)
    assert not descendants()


def test_numpy_ints_are_ints(make: Maker) -> None:
    augmenter = make(
        RandomLoader(), Noise(), np.int64(0), np.int32(2), seed=np.int64(3), num_streams=np.int8(2),
        batches_per_epoch=np.int16(4), rank=np.int64(0), world_size=np.uint8(1),
    )  # fmt: skip
    plain = make(RandomLoader(), Noise(), 0, 2, seed=3, num_streams=2, batches_per_epoch=4)
    assert prints(augmenter) == prints(plain)
    assert len(augmenter) == 4


@pytest.mark.parametrize("transform", [3, "noise", [Noise()]])
def test_transform_that_cannot_be_called_is_refused_at_once(make: Maker, transform: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        make(RandomLoader(), transform, 2, seed=1)
    assert not descendants()


@pytest.mark.parametrize("n", [0, 2])
def test_batch_that_cannot_be_pickled_is_named_by_key(make: Maker, n: int, start_method: str) -> None:
    with pytest.raises(RuntimeError, match=r"batch\['handle'\] of type lock cannot be pickled"):
        next(make(Chatty(), None, n, seed=1, executor=workers(n, start_method)))


@pytest.mark.parametrize("word", ["end", ""])
def test_batches_that_stock_augmenters_take_for_the_end_are_batches(make: Maker, word: str) -> None:
    for n in (0, 1):
        assert list(make([word, 1, word], None, n, seed=1, num_streams=1)) == [word, 1, word]


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
