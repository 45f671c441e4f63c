"""Every pass over a DataLoader is the next epoch; and states of one."""

from __future__ import annotations

import copy
import pickle
import weakref
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from detaug import DataLoader, StateMismatch, fingerprint
from detaug.augmenter.passes import Epochs, Rest
from tests.support.comparing import through_json
from tests.support.numbers import Count, Numbers, epochs, loader, samples, seen


def test_a_pass_is_the_next_epoch() -> None:
    passes = epochs(3)
    assert len({tuple(epoch) for epoch in passes}) == 3
    for epoch in passes:
        assert sorted(sum(epoch, ())) == list(range(12))


def test_a_loader_in_order_has_other_numbers_in_every_pass() -> None:
    batches = loader(shuffle=False)
    first = {fingerprint(batch) for batch in batches}
    second = {fingerprint(batch) for batch in batches}
    assert first.isdisjoint(second)


@pytest.mark.parametrize("epoch", [0, 4])
def test_a_fixed_epoch_is_the_same_at_every_pass(epoch: int) -> None:
    batches = loader(epoch=epoch)
    batches.set_epoch(2)
    expected = epochs(5)[epoch]
    assert seen(batches) == expected
    assert seen(batches) == expected


@pytest.mark.parametrize("num_taken", [1, 3, 6])
def test_after_a_break_another_pass_is_the_next_epoch(num_taken: int) -> None:
    batches = loader()
    for _, _ in zip(range(num_taken), batches, strict=False):
        pass
    assert seen(batches) == epochs(2)[1]


def test_a_pass_holds_no_batch_that_the_loop_has_dropped() -> None:
    # Otherwise its memory would stay in use while the loop works on the next batch.
    passing = iter(loader())
    batch = next(passing)
    reference = weakref.ref(batch)
    del batch
    assert reference() is None


class Broken(Numbers):
    """A data set whose item 4 cannot be read."""

    def __getitem__(self, index: int) -> torch.Tensor:
        if index == 4:
            raise KeyError(index)
        return super().__getitem__(index)


def test_a_pass_that_an_error_has_ended_does_not_look_complete() -> None:
    batches = DataLoader(Broken(), 2, seed=3, check=False)
    passing = iter(batches)
    assert [samples(next(passing)) for _ in range(2)] == [(0, 1), (2, 3)]
    with pytest.raises(KeyError):
        next(passing)
    with pytest.raises(RuntimeError, match=r"ended by BatchError.*on_error=Skip"):
        next(passing)
    assert samples(next(iter(batches))) == (0, 1)


def test_two_passes_at_once_are_both_right() -> None:
    batches = loader()
    first, second = zip(*zip(batches, batches, strict=True), strict=True)
    assert [seen(first), seen(second)] == epochs(2)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ([0, 1, 2], [0, 1, 2]),
        # A library makes two passes in one of its epochs.
        ([3, 4, 4], [3, 4, 5]),
        # The shorter of two loaders in Lightning.
        ([0, None, 1, None, 2], [0, 1, 2, 3, 4]),
        # MONAI, which counts from 1.
        ([1, None, 2], [1, 2, 3]),
        # A library counts from 0 again.
        ([2, 0, 0], [2, 3, 4]),
        ([None, 5, None], [0, 5, 6]),
    ],
)
def test_no_two_passes_give_the_same_epoch(named: list[int | None], expected: list[int]) -> None:
    epochs_of_passes = Epochs()
    begun = []
    for name in named:
        if name is not None:
            epochs_of_passes.set_epoch(name)
        epoch, _ = epochs_of_passes.begin(epochs_of_passes.name)
        begun.append(epoch)
    assert begun == expected


#: States that were saved in epoch 3, which the library called 1.
IN_PASS = Rest(3, 1, is_empty=False, was_left=False)
LEFT_PASS = Rest(3, 1, is_empty=False, was_left=True)
ALL_TAKEN = Rest(3, 1, is_empty=True, was_left=False)
UNNAMED = Rest(3, None, is_empty=False, was_left=False)

#: Name -> (saved state, calls in the resumed run, epoch of the next pass and whether it is the
#: rest of it). A call is of `iter`, or of `set_epoch` of the loader or of its sampler.
RESTS: dict[str, tuple[Rest, list[tuple[str, int]], tuple[int, bool]]] = {
    "nothing is named": (
        IN_PASS,
        [],
        (3, True),
    ),
    "the same epoch": (
        IN_PASS,
        [("loader", 1)],
        (3, True),
    ),
    "the next one, by the user": (
        IN_PASS,
        [("loader", 2)],
        (4, False),
    ),
    "the next one, by Lightning": (
        IN_PASS,
        [("iter", 0), ("sampler", 2)],
        (4, False),
    ),
    "the next one, by MONAI, in a pass that stays open": (
        IN_PASS,
        [("sampler", 2), ("iter", 0)],
        (3, True),
    ),
    "the next one, by MONAI, of a pass that was left": (
        LEFT_PASS,
        [("sampler", 2), ("iter", 0)],
        (4, False),
    ),
    "from 0 again": (
        IN_PASS,
        [("loader", 0)],
        (3, True),
    ),
    "its own number, never named before": (
        UNNAMED,
        [("loader", 3)],
        (3, True),
    ),
    "a later number, never named before": (
        UNNAMED,
        [("loader", 6)],
        (6, False),
    ),
    "all batches taken": (
        ALL_TAKEN,
        [],
        (4, False),
    ),
    "all batches taken, and the same epoch": (
        ALL_TAKEN,
        [("loader", 1)],
        (3, True),
    ),
    "all batches taken, and the next one": (
        ALL_TAKEN,
        [("loader", 2)],
        (4, False),
    ),
}


@pytest.mark.parametrize(("rest", "calls", "expected"), RESTS.values(), ids=RESTS)
def test_which_epoch_a_resumed_run_goes_on_with(
    rest: Rest, calls: list[tuple[str, int]], expected: tuple[int, bool]
) -> None:
    epochs_of_passes = Epochs()
    epochs_of_passes.load(4, rest)
    has_iterated = False
    for caller, epoch in calls:
        if caller == "iter":
            name_at_iter = epochs_of_passes.name
            has_iterated = True
        else:
            epochs_of_passes.set_epoch(epoch, is_firm=caller == "loader")
    if not has_iterated:
        name_at_iter = epochs_of_passes.name
    assert epochs_of_passes.begin(name_at_iter) == expected


def state_after(num_taken: int, epoch: int = 1, **options: Any) -> dict[str, Any]:
    """Return the state of a loader after the first batches of an epoch."""
    batches = loader(**options)
    for _ in range(epoch):
        seen(batches)
    passing = iter(batches)
    for _ in range(num_taken):
        next(passing)
    return through_json(batches.state_dict())


@pytest.mark.parametrize("num_taken", [0, 1, 5])
def test_a_state_of_mid_epoch_gives_its_rest_and_then_the_next(num_taken: int) -> None:
    batches = loader()
    batches.load_state_dict(state_after(num_taken))
    _, second, third = epochs(3)
    assert len(batches) == 6, "len is that of a whole epoch, also before the rest of one"
    assert seen(batches) == second[num_taken:]
    assert seen(batches) == third


def test_a_state_of_before_the_first_batch_gives_everything() -> None:
    batches = loader()
    batches.load_state_dict(loader().state_dict())
    assert seen(batches) == epochs(1)[0]


def test_a_state_in_a_second_pass_goes_on_in_it() -> None:
    # Lightning makes two passes over the shorter of two loaders, and names one epoch for both.
    batches = loader()
    batches.sampler.set_epoch(0)
    seen(batches)
    passing = iter(batches)
    first = [samples(next(passing)) for _ in range(2)]
    resumed = loader()
    resumed.load_state_dict(batches.state_dict())
    rest = iter(resumed)
    resumed.sampler.set_epoch(0)
    _, second = epochs(2)
    assert first + seen(rest) == second


def test_a_state_of_an_iterable_goes_on_where_it_was() -> None:
    def loader_of_count() -> DataLoader[Any]:
        return DataLoader(Count(), 2, seed=1, check=False)

    batches = loader_of_count()
    passing = iter(batches)
    next(passing)
    resumed = loader_of_count()
    resumed.load_state_dict(batches.state_dict())
    assert [batch.tolist() for batch in resumed] == [[2, 3], [4, 5], [6]]
    assert [batch.tolist() for batch in resumed] == [[0, 1], [2, 3], [4, 5], [6]]


def test_a_state_of_an_unknown_length_whose_length_was_asked_for_is_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    batches = DataLoader(Count(), 2, seed=1)
    with pytest.raises(TypeError):
        len(batches)
    batches.state_dict()
    assert "Give Count a __len__" in caplog.text


def test_a_state_of_another_pipeline_is_refused() -> None:
    with pytest.raises(StateMismatch, match="seed"):
        loader(seed=4).load_state_dict(state_after(3))
    with pytest.raises(StateMismatch, match="batch_size"):
        loader(batch_size=3).load_state_dict(state_after(3))


def test_a_batch_is_replayed() -> None:
    batches = loader()
    seen(batches)
    passing = iter(batches)
    first_three = [next(passing) for _ in range(3)]
    assert torch.equal(batches.replay(1, 2), first_three[2])
    assert samples(next(passing)) == epochs(2)[1][3]


def test_the_augmenter_is_there_for_whoever_wants_more() -> None:
    batches = loader(name="train")
    assert batches.augmenter.name == "train"
    assert batches.stats() == batches.augmenter.stats()
    batches.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(iter(batches))


def copy_by_pickling(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))


COPIES = [copy.copy, copy.deepcopy, copy_by_pickling]


@pytest.mark.parametrize("copy_it", COPIES)
def test_a_copy_stands_where_the_loader_does(copy_it: Any) -> None:
    assert seen(copy_it(loader())) == epochs(1)[0]
    batches = loader()
    passing = iter(batches)
    next(passing)
    assert seen(copy_it(batches)) == seen(passing)


class Doubled(DataLoader[Any]):
    """A subclass with other arguments, and an attribute of its own."""

    def __init__(self, dataset: Any, factor: int) -> None:
        super().__init__(dataset, 2, seed=3, check=False)
        self.factor = factor
        self.owner = self

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch * self.factor


@pytest.mark.parametrize("copy_it", COPIES)
def test_a_copy_of_a_subclass_is_one_with_its_attributes(copy_it: Any) -> None:
    batches = Doubled(Numbers(4), 2)
    copied = copy_it(batches)
    assert seen(copied) == seen(batches) == [(0, 2), (4, 6)]
    assert type(copied.owner) is Doubled


def test_a_loader_that_was_only_made_has_drawn_nothing() -> None:
    state_before = torch.random.get_rng_state()
    len(loader(seed=None))
    assert torch.equal(torch.random.get_rng_state(), state_before)


# --- ranks, as far as they need no process group


def ranks(number: int, length: int, **flags: Any) -> list[DataLoader[Any]]:
    """Return the loaders of all ranks, each with a DistributedSampler."""
    drop_last = flags.pop("drop_last", False)
    loaders = []
    for rank in range(number):
        sampler = DistributedSampler(Numbers(length), number, rank, **flags)
        loaders.append(loader(length, shuffle=None, drop_last=drop_last, sampler=sampler))
    return loaders


@pytest.mark.parametrize(
    ("flags", "shares"),
    [
        ({}, [[0, 2, 4, 6], [1, 3, 5, 0]]),
        ({"drop_last": True}, [[0, 2, 4], [1, 3, 5]]),
        ({"shuffle": False}, [[0, 2, 4, 6], [1, 3, 5, 0]]),
    ],
)
def test_ranks_with_a_distributed_sampler_share_batches(
    flags: dict[str, Any], shares: list[list[int]]
) -> None:
    whole_epochs = epochs(2, length=14, shuffle=flags.get("shuffle", True))
    for batches, share in zip(ranks(2, 14, **flags), shares, strict=True):
        assert len(batches) == len(share)
        for epoch in whole_epochs:
            assert seen(batches) == [epoch[step] for step in share]


def test_set_epoch_of_the_users_distributed_sampler_is_heard() -> None:
    (batches,) = ranks(1, 12)
    batches.sampler.set_epoch(2)
    assert seen(batches) == epochs(3)[2]
    batches.set_epoch(4)
    assert batches.sampler.epoch == 4
    assert seen(batches) == epochs(5)[4]


def test_a_state_of_two_ranks_goes_on_with_one() -> None:
    one, other = ranks(2, 12)
    first, second = epochs(2)
    assert samples(next(iter(one))) == first[0]
    assert samples(next(iter(other))) == first[1]
    alone = loader()
    alone.load_state_dict(one.state_dict())
    assert len(alone) == 6
    assert seen(alone) == first[2:]
    assert seen(alone) == second


class Halves(DistributedSampler[Any]):
    """A distributed sampler with an order of its own."""

    def __iter__(self) -> Any:
        return iter(range(6))


def test_a_distributed_sampler_with_an_order_of_its_own_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Halves gives each rank a share .* shard=True"):
        loader(shuffle=None, sampler=Halves(Numbers(), 2, 0))


def test_a_length_told_before_the_ranks_were_known_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = loader(shard=True)
    assert len(batches) == 6
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(RuntimeError, match=r"was 6 .* is 3 now that there are 2 ranks"):
        next(iter(batches))


def test_a_state_loaded_before_the_ranks_were_known_is_gone_on_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    batches = loader(shard=True)
    batches.load_state_dict(state_after(2, epoch=0))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    first, second = epochs(2)
    assert seen(batches) == first[3::2]
    assert seen(batches) == second[1::2]
