"""Changes of the pipeline have an effect until it is taken; then they are an error.

batchgenerators' augmenters also take the pipeline at the first batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

from detaug import DeterministicAugmenter, InThisProcess, LocalProcesses, StateMismatch
from detaug.errors import BatchError
from detaug.pipeline.copying import large_arrays
from tests.support.comparing import fingerprints_of, take
from tests.support.loaders import IndexLoader, RandomLoader, Samples


class Constant(SlimDataLoaderBase):
    """A loader of batches that hold one number."""

    def __init__(self, number: float = 0.0, batch_size: int = 2) -> None:
        super().__init__([0], batch_size)
        self.number = number

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.full((self.batch_size, 1), self.number)}


class Add:
    """A transform that adds a number."""

    def __init__(self, amount: float) -> None:
        self.amount = amount

    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "data": batch["data"] + self.amount}


class Chain:
    """A composition of transforms."""

    def __init__(self, *transforms: Callable[..., Any]) -> None:
        self.transforms = list(transforms)

    def __call__(self, **batch: Any) -> dict[str, Any]:
        for transform in self.transforms:
            batch = transform(**batch)
        return batch


def augmenter(**options: Any) -> DeterministicAugmenter:
    return DeterministicAugmenter(Constant(), Chain(Add(1)), 0, **{"seed": 1, **options})


def value(batch: dict[str, Any]) -> float:
    """Return the number that a batch of `Constant` holds."""
    return float(batch["data"][0, 0])


def add_ten(aug: DeterministicAugmenter) -> None:
    aug.transform.transforms.append(Add(10))


def other_attribute(aug: DeterministicAugmenter) -> None:
    aug.generator.number = 10


def other_loader(aug: DeterministicAugmenter) -> None:
    aug.generator = Constant(10)


def other_transform(aug: DeterministicAugmenter) -> None:
    aug.transform = Add(11)


#: Each makes the first batch hold 11 instead of 1.
CHANGES = [add_ten, other_attribute, other_loader, other_transform]


def replay(aug: DeterministicAugmenter) -> Any:
    return aug.replay(0, 0)


def start(aug: DeterministicAugmenter) -> None:
    aug._start()


#: All that takes the pipeline for the first time.
FIRST_USES = [next, start, replay]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("first_batch", [next, replay], ids=["next", "replay"])
def test_a_change_before_the_first_batch_counts(
    change: Callable[[Any], None], first_batch: Callable[[Any], Any]
) -> None:
    aug = augmenter()
    change(aug)
    assert value(first_batch(aug)) == 11


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("restarts", [True, False])
def test_a_change_after_finish_counts(change: Callable[[Any], None], restarts: bool) -> None:
    aug = augmenter()
    assert value(next(aug)) == 1
    aug._finish()
    change(aug)
    if restarts:
        aug.restart()
    assert value(next(aug)) == 11


@pytest.mark.parametrize("first_use", FIRST_USES)
def test_a_change_of_objects_after_that_does_not_reach_the_batches(
    first_use: Callable[[Any], Any],
) -> None:
    aug = augmenter()
    first_use(aug)
    add_ten(aug)
    assert value(next(aug)) == 1
    assert value(aug.replay(0, 0)) == 1


def test_restart_alone_takes_the_pipeline_as_it_is_then() -> None:
    aug = augmenter()
    next(aug)
    add_ten(aug)
    aug.restart()
    assert value(next(aug)) == 11


SETTINGS = [
    ("generator", Constant()),
    ("transform", None),
    ("num_processes", 2),
    ("num_cached", 5),
    ("seeds", [1]),
]


@pytest.mark.parametrize(("name", "new"), SETTINGS)
def test_setting_after_the_first_batch_is_an_error_that_says_how(name: str, new: Any) -> None:
    aug = augmenter()
    next(aug)
    old = getattr(aug, name)
    with pytest.raises(
        AttributeError, match=rf"{name} cannot be set now.*_finish\(\).*restart\(\)"
    ):
        setattr(aug, name, new)
    assert getattr(aug, name) == old


def test_the_number_of_processes_counts_until_the_first_batch() -> None:
    aug = augmenter()
    aug.num_processes = 3
    aug.num_cached = 5
    same = DeterministicAugmenter(Constant(), Chain(Add(1)), 3, 5, seed=1)
    assert aug.num_processes == 3
    assert aug.num_cached == 5
    assert aug.seeds == [None] * 3
    assert aug.executor == same.executor == LocalProcesses()
    assert repr(aug) == repr(same)
    aug.num_processes = 0
    assert aug.executor == InThisProcess()
    assert value(next(aug)) == 1


REFUSED_SETTINGS = [
    ("transform", 3),
    ("num_processes", -1),
    ("num_cached", -1),
    ("num_cached", 1.5),
    ("seeds", [1, 2, 3]),
]


@pytest.mark.parametrize(("name", "wrong"), REFUSED_SETTINGS)
def test_a_setting_that_is_refused_leaves_the_one_that_was(name: str, wrong: Any) -> None:
    aug = augmenter()
    old = getattr(aug, name)
    with pytest.raises((TypeError, ValueError), match=name):
        setattr(aug, name, wrong)
    assert getattr(aug, name) == old
    assert value(next(aug)) == 1


def test_a_loader_that_is_refused_leaves_the_one_that_was() -> None:
    aug = augmenter()
    with pytest.raises(TypeError, match="generator object"):
        aug.generator = (batch for batch in ())
    assert value(next(aug)) == 1


def test_what_cannot_be_copied_is_still_refused_by_the_constructor() -> None:
    transform = Add(1)
    with open(__file__) as transform.file, pytest.raises(TypeError, match="file"):  # type: ignore[attr-defined]
        DeterministicAugmenter(Constant(), transform, 0, seed=1)


def test_length_and_streams_follow_what_is_changed() -> None:
    aug = DeterministicAugmenter(IndexLoader(40, 4, 2), None, 0, seed=1)
    assert (len(aug), aug.num_streams) == (10, 2)
    aug.generator.batch_size = 8
    assert len(aug) == 5
    aug.generator = IndexLoader(40, 2, 5)
    assert (len(aug), aug.num_streams) == (20, 5)
    assert len(list(aug)) == 20


def test_a_data_set_is_taken_as_it_is_at_the_first_batch() -> None:
    samples = list(range(4))
    aug = DeterministicAugmenter.from_dataset(samples, 2, shuffle=False, num_processes=0, seed=1)
    samples += [4, 5]
    assert len(aug) == 3
    assert [batch.tolist() for batch in aug] == [[0, 1], [2, 3], [4, 5]]


def test_another_data_set_takes_the_place_of_the_first() -> None:
    aug = DeterministicAugmenter.from_dataset(Samples(4), 2, num_processes=0, seed=1)
    aug.generator = Samples(10)
    same = DeterministicAugmenter.from_dataset(Samples(10), 2, num_processes=0, seed=1)
    assert fingerprints_of(aug) == fingerprints_of(same)


def test_what_a_changed_callable_makes_counts() -> None:
    size = [4]

    def make() -> DataLoader:
        return IndexLoader(40, size[0], 1)

    aug = DeterministicAugmenter(make, None, 0, seed=1)
    size[0] = 8
    assert len(list(aug)) == 5


def test_batches_do_not_depend_on_when_the_pipeline_was_put_together() -> None:
    aug = augmenter()
    add_ten(aug)
    other_attribute(aug)
    same = DeterministicAugmenter(Constant(10), Chain(Add(1), Add(10)), 0, seed=1)
    assert fingerprints_of(take(aug, 3)) == fingerprints_of(take(same, 3))
    assert aug.state_dict() == same.state_dict()


# --- states


def saved(aug: DeterministicAugmenter) -> dict[str, Any]:
    """Return the state after three batches."""
    take(aug, 3)
    return aug.state_dict()


def test_a_loaded_state_is_compared_with_the_pipeline_that_is_taken() -> None:
    state = saved(DeterministicAugmenter(Constant(), Chain(Add(1), Add(10)), 0, seed=1))
    aug = augmenter()
    aug.load_state_dict(state)
    add_ten(aug)
    assert value(next(aug)) == 11
    assert aug.step == 4


@pytest.mark.parametrize("first_use", FIRST_USES)
def test_a_state_of_another_pipeline_is_refused_when_the_pipeline_is_taken(
    first_use: Callable[[Any], Any],
) -> None:
    state = saved(augmenter())
    aug = augmenter()
    aug.load_state_dict(state)
    add_ten(aug)
    for _ in range(2):
        with pytest.raises(StateMismatch, match="transforms"):
            first_use(aug)
    aug.transform.transforms.pop()
    assert value(next(aug)) == 1
    assert aug.step == 4


def test_a_state_of_another_seed_is_refused_at_once() -> None:
    with pytest.raises(StateMismatch, match="seed"):
        augmenter().load_state_dict(saved(augmenter(seed=2)))


# --- seeds, and restart


def test_restart_repeats_the_current_epoch_where_a_seed_was_passed() -> None:
    aug = DeterministicAugmenter(RandomLoader(), None, 0, seed=1)
    first = fingerprints_of(take(aug, 3))
    aug.restart()
    assert aug.epoch == 0
    assert fingerprints_of(take(aug, 3)) == first


def test_restart_draws_new_numbers_where_none_was() -> None:
    aug = DeterministicAugmenter(RandomLoader(), None, 0)
    aug.restart()
    assert aug.epoch == 0, "no batch of it has been delivered"
    first = fingerprints_of(take(aug, 3))
    aug.restart()
    assert aug.epoch == 1
    assert not set(fingerprints_of(take(aug, 3))) & set(first)


def test_seeds_may_be_set_until_the_first_batch() -> None:
    aug = DeterministicAugmenter(RandomLoader(), None, 2)
    assert aug.seeds == [None, None]
    aug.seeds = [5, 6]
    same = DeterministicAugmenter(RandomLoader(), None, 2, seeds=[5, 6])
    assert aug.seed == [5, 6]
    assert fingerprints_of([aug.replay(0, 3)]) == fingerprints_of([same.replay(0, 3)])


def test_what_was_counted_stays_counted_after_a_restart() -> None:
    aug = DeterministicAugmenter(Constant(), Add(1), 0, seed=1, check=1)
    take(aug, 3)
    num_checked = aug.stats()["checked"]
    aug.restart()
    assert aug.stats()["checked"] == num_checked > 0
    aug._finish()
    aug.transform = Add(10)
    aug.restart()
    assert aug.stats()["checked"] == num_checked


def test_what_was_said_is_not_said_again_after_a_restart(caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        aug = DeterministicAugmenter(IndexLoader(8, 2, 1), None, 2, seed=1)
        aug.replay(0, 0)
    assert sum("will be idle" in record.getMessage() for record in caplog.records) == 1


def test_a_batch_that_failed_is_made_with_the_changed_pipeline() -> None:
    def fails(**batch: Any) -> Any:
        raise ValueError("never")

    aug = DeterministicAugmenter(Constant(), fails, 0, seed=1)
    with pytest.raises(BatchError):
        next(aug)
    aug._finish()
    aug.transform = Add(1)
    assert value(next(aug)) == 1


def test_large_arrays_are_stored_once_when_the_pipeline_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stored = []

    def write_block(arrays: list[Any]) -> Any:
        stored.append([array.nbytes for array in arrays])
        return original(arrays)

    original = large_arrays.write_block
    monkeypatch.setattr(large_arrays, "write_block", write_block)
    amounts = np.zeros((1, 100_000))
    with DeterministicAugmenter(Constant(), Chain(Add(amounts)), 0, seed=1) as aug:
        assert stored == []
        amounts[:] = 5.0
        aug.settle()
        assert stored == [[amounts.nbytes]]
        amounts[:] = 7.0
        assert value(next(aug)) == 5.0
