"""States of other pipelines, and positions that there are not, are refused by name; nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import BatchSampler, SubsetRandomSampler
from torch.utils.data import RandomSampler as TorchsSampler

from detaug import DeterministicAugmenter, StateMismatch
from tests.support.comparing import prints, take
from tests.support.loaders import Noise, OtherNoise, RandomLoader, RandomSampler, Samples

PIPELINE: dict[str, Any] = {
    "num_processes": 0,
    "seed": 5,
    "num_streams": 4,
    "batches_per_epoch": 8,
    "version": "a",
}


def augmenter(loader: Any = None, transform: Any = None, **changed: Any) -> DeterministicAugmenter:
    options = {**PIPELINE, **changed}
    return DeterministicAugmenter(loader or RandomLoader(), transform or Noise(), **options)


def state_of(made: DeterministicAugmenter, taken: int = 3) -> dict[str, Any]:
    take(made, taken)
    return made.state_dict()


# another pipeline → what the message says of it
OTHERS: list[tuple[Callable[[], DeterministicAugmenter], tuple[str, ...]]] = [
    (lambda: augmenter(RandomSampler()), ("RandomLoader", "RandomSampler")),
    (lambda: augmenter(transform=OtherNoise()), ("Noise", "OtherNoise")),
    (lambda: augmenter(RandomLoader(batch_size=3)), ("batch_size", "2", "3")),
    (lambda: augmenter(transform=Noise(scale=2.0)), ("scale", "1.0", "2.0")),
    (lambda: augmenter(num_streams=2), ("num_streams", "4", "2")),
    (lambda: augmenter(batches_per_epoch=9), ("batches_per_epoch", "8", "9")),
    (lambda: augmenter(version="b"), ("version", "a", "b")),
    (lambda: augmenter(seed=6), ("seed", "5", "6")),
    (lambda: augmenter(name="val"), ("name", "val")),
]


@pytest.mark.parametrize(("other", "words"), OTHERS, ids=[words[0] for _, words in OTHERS])
def test_a_state_of_another_pipeline_is_refused_with_both_values(
    other: Callable[[], DeterministicAugmenter], words: tuple[str, ...]
) -> None:
    here = augmenter()
    expected = prints(augmenter())
    take(here, 2)
    with pytest.raises(StateMismatch) as caught:
        here.load_state_dict(state_of(other()))
    for word in words:
        assert word in str(caught.value)
    assert prints(here) == expected[2:], "a refused state leaves the stream where it was"


def of_data(**order: Any) -> DeterministicAugmenter:
    if "batch_sampler" not in order:
        order["batch_size"] = 3
    return DeterministicAugmenter.from_dataset(Samples(17), num_processes=0, seed=19, **order)


BUCKETS = [[0, 4, 5], [1], [2, 3], [6, 7, 8, 9], [16, 10], [12, 13]]


@pytest.mark.parametrize(
    ("here", "other", "named"),
    [
        (
            {"sampler": TorchsSampler(Samples(17))},
            {"sampler": SubsetRandomSampler(range(3, 16))},
            "sampler",
        ),
        (
            {"sampler": [*range(17), 3, 2, 1]},
            {"sampler": SubsetRandomSampler(range(17))},
            "sampler",
        ),
        (
            {"batch_sampler": BatchSampler(TorchsSampler(range(17)), 3, False)},
            {"batch_sampler": BUCKETS},
            "batch_sampler",
        ),
    ],
)
def test_a_state_of_another_order_is_refused_by_its_argument(
    here: dict[str, Any], other: dict[str, Any], named: str
) -> None:
    state = state_of(of_data(**other))
    resumed = of_data(**here)
    resumed.load_state_dict(state)
    with pytest.raises(StateMismatch, match=named):
        next(resumed)


@pytest.mark.parametrize("word", ["seed_scheme", "numerics"])
def test_a_state_of_another_version_is_refused_with_both(word: str) -> None:
    state = state_of(augmenter())
    ours, theirs = state[word], state[word] + 1
    words = rf"{word.split('_')[-1]}.*here {ours}, in the state {theirs}"
    with pytest.raises(StateMismatch, match=words):
        augmenter().load_state_dict({**state, word: theirs})


def test_a_state_of_old_style_seeds_needs_the_same_seeds() -> None:
    def of_seeds(seeds: list[int]) -> DeterministicAugmenter:
        return DeterministicAugmenter(RandomLoader(), None, len(seeds), 2, seeds)

    state = of_seeds([1, 2]).state_dict()
    of_seeds([1, 2]).load_state_dict(state)
    with pytest.raises(StateMismatch, match="seed"):
        of_seeds([1, 3]).load_state_dict(state)


@pytest.mark.parametrize(
    "rubbish", [{}, {"epoch": 0, "step": 3}, {"model": {}, "optimizer": {}}, None, 3, "state", []]
)
def test_what_is_no_state_is_refused(rubbish: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="state dict"):
        augmenter().load_state_dict(rubbish)


def load_with(key: str, value: Any) -> None:
    made = augmenter()
    state = state_of(made)
    assert key in state
    made.load_state_dict({**state, key: value})


# whatever takes an epoch or a step → values beyond its range
POSITIONS: dict[str, tuple[Callable[[Any], Any], list[int]]] = {
    "epoch of set_epoch": (lambda value: augmenter().set_epoch(value), [2**32]),
    "epoch of replay": (lambda value: augmenter().replay(value, 0), [2**32]),
    "step of replay": (lambda value: augmenter().replay(0, value), [8, 2**80]),
    "epoch of a state": (lambda value: load_with("epoch", value), [2**32]),
    "step of a state": (lambda value: load_with("step", value), [2**70]),
}


@pytest.mark.parametrize("where", POSITIONS)
def test_a_position_that_there_is_not_is_refused_by_name(where: str) -> None:
    go, beyond = POSITIONS[where]
    for value in (-1, *beyond, 1.0, 1.5, "1", None):
        with pytest.raises((ValueError, TypeError, IndexError), match=where.split()[0]):
            go(value)
