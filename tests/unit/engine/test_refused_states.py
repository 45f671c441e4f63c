"""States of other pipelines and impossible positions are refused by name, and nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from torch.utils.data import BatchSampler, SubsetRandomSampler
from torch.utils.data import RandomSampler as TorchsSampler

from detaug import DeterministicAugmenter, StateMismatch
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import Noise, OtherNoise, RandomLoader, RandomSampler, Samples

PIPELINE: dict[str, Any] = {
    "data_loader": RandomLoader(),
    "transform": Noise(),
    "num_processes": 0,
    "seed": 5,
    "num_streams": 4,
    "batches_per_epoch": 8,
    "version": "a",
}


def augmenter(**changed: Any) -> DeterministicAugmenter:
    """Return an augmenter of `PIPELINE` with some arguments changed."""
    return DeterministicAugmenter(**{**PIPELINE, **changed})


def state_of(aug: DeterministicAugmenter) -> dict[str, Any]:
    """Return an augmenter's state after three batches."""
    take(aug, 3)
    return aug.state_dict()


#: Pairs of the arguments that differ from `PIPELINE` and words of the message.
OTHERS: list[tuple[dict[str, Any], tuple[str, ...]]] = [
    ({"data_loader": RandomSampler()}, ("RandomLoader", "RandomSampler")),
    ({"transform": OtherNoise()}, ("Noise", "OtherNoise")),
    ({"data_loader": RandomLoader(batch_size=3)}, ("batch_size", "2", "3")),
    ({"transform": Noise(scale=2.0)}, ("scale", "1.0", "2.0")),
    ({"num_streams": 2}, ("num_streams", "4", "2")),
    ({"batches_per_epoch": 9}, ("batches_per_epoch", "8", "9")),
    ({"version": "b"}, ("version", "a", "b")),
    ({"seed": 6}, ("seed", "5", "6")),
    ({"name": "val"}, ("name", "val")),
]


@pytest.mark.parametrize(("changed", "words"), OTHERS, ids=[words[0] for _, words in OTHERS])
def test_a_state_of_another_pipeline_is_refused_with_both_values(
    changed: dict[str, Any], words: tuple[str, ...]
) -> None:
    aug = augmenter()
    expected = fingerprints_of(augmenter())
    take(aug, 2)
    with pytest.raises(StateMismatch) as caught:
        aug.load_state_dict(state_of(augmenter(**changed)))
    for word in words:
        assert word in str(caught.value)
    assert fingerprints_of(aug) == expected[2:], "a refused state leaves the stream where it was"


def of_data(**order: Any) -> DeterministicAugmenter:
    """Return an augmenter of a data set that is read in some order."""
    if "batch_sampler" not in order:
        order["batch_size"] = 3
    return DeterministicAugmenter.from_dataset(Samples(17), num_processes=0, seed=19, **order)


BUCKETS = [[0, 4, 5], [1], [2, 3], [6, 7, 8, 9], [16, 10], [12, 13]]

#: The argument that sets the order, its value in the resumed run, and its value in the saved run.
ORDERS: list[tuple[str, Any, Any]] = [
    ("sampler", TorchsSampler(Samples(17)), SubsetRandomSampler(range(3, 16))),
    ("sampler", [*range(17), 3, 2, 1], SubsetRandomSampler(range(17))),
    ("batch_sampler", BatchSampler(TorchsSampler(range(17)), 3, False), BUCKETS),
]


@pytest.mark.parametrize(("name", "value", "saved_value"), ORDERS)
def test_a_state_of_another_order_is_refused_by_its_argument(
    name: str, value: Any, saved_value: Any
) -> None:
    state = state_of(of_data(**{name: saved_value}))
    resumed = of_data(**{name: value})
    resumed.load_state_dict(state)
    with pytest.raises(StateMismatch, match=name):
        next(resumed)


@pytest.mark.parametrize(("key", "word"), [("seed_scheme", "scheme"), ("numerics", "numerics")])
def test_a_state_of_another_version_is_refused_with_both(key: str, word: str) -> None:
    state = state_of(augmenter())
    version = state[key]
    other = version + 1
    with pytest.raises(StateMismatch, match=rf"{word}.*here {version}, in the state {other}"):
        augmenter().load_state_dict({**state, key: other})


def of_seeds(seeds: list[int]) -> DeterministicAugmenter:
    return DeterministicAugmenter(RandomLoader(), None, len(seeds), 2, seeds)


def test_a_state_of_old_style_seeds_needs_the_same_seeds() -> None:
    state = of_seeds([1, 2]).state_dict()
    of_seeds([1, 2]).load_state_dict(state)
    with pytest.raises(StateMismatch, match="seed"):
        of_seeds([1, 3]).load_state_dict(state)


@pytest.mark.parametrize(
    "rubbish",
    [
        {},
        {"epoch": 0, "step": 3},
        {"model": {}, "optimizer": {}},
        None,
        3,
        "state",
        [],
    ],
)
def test_what_is_no_state_is_refused(rubbish: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="state dict"):
        augmenter().load_state_dict(rubbish)


#: Pairs of a rank and a number of ranks such that step 3 is not a step of that rank.
NO_RANKS = [
    (1, 1),
    (2, 2),
    (3, 3),
    (3, 2),
    (0, 2),
    (4, 5),
]


@pytest.mark.parametrize("resized", [{}, {"before": 0}])
@pytest.mark.parametrize(("rank", "world_size"), NO_RANKS)
def test_a_step_that_is_none_of_its_rank_is_refused(
    rank: int, world_size: int, resized: dict[str, int]
) -> None:
    if resized and (rank, world_size) == (0, 2):
        # After a change of the number of ranks, any step may be one of rank 0.
        return
    state = {**state_of(augmenter()), **resized}
    assert state["step"] == 3
    state["rank"] = rank
    state["world_size"] = world_size
    with pytest.raises(ValueError, match=f"step 3 does not belong to rank {rank} of {world_size}"):
        augmenter().load_state_dict(state)


def set_epoch(epoch: Any) -> None:
    augmenter().set_epoch(epoch)


def replay_of_epoch(epoch: Any) -> None:
    augmenter().replay(epoch, 0)


def replay_of_step(step: Any) -> None:
    augmenter().replay(0, step)


def load_with(key: str, value: Any) -> None:
    """Load a state with another value of one key."""
    aug = augmenter()
    state = state_of(aug)
    assert key in state
    aug.load_state_dict({**state, key: value})


def load_epoch(epoch: Any) -> None:
    load_with("epoch", epoch)


def load_step(step: Any) -> None:
    load_with("step", step)


#: Name -> (function of an epoch or a step, values beyond its range).
POSITIONS: dict[str, tuple[Callable[[Any], None], list[int]]] = {
    "epoch of set_epoch": (set_epoch, [2**32]),
    "epoch of replay": (replay_of_epoch, [2**32]),
    "step of replay": (replay_of_step, [8, 2**80]),
    "epoch of a state": (load_epoch, [2**32]),
    "step of a state": (load_step, [2**70]),
}


@pytest.mark.parametrize("name", POSITIONS)
def test_a_position_that_there_is_not_is_refused_by_name(name: str) -> None:
    use_position, beyond = POSITIONS[name]
    word = name.split()[0]
    for value in (-1, *beyond, 1.0, 1.5, "1", None):
        with pytest.raises((ValueError, TypeError, IndexError), match=word):
            use_position(value)
