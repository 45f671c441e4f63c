"""One iter() is one epoch, the next one each time; and states."""

from __future__ import annotations

import copy
import json
import pickle
from typing import Any

import pytest
import torch
from torch.utils.data import DistributedSampler

from detaug import DataLoader, StateMismatch, fingerprint
from detaug.augmenter.passes import Epochs, Rest
from tests.support.numbers import Count, Numbers, epochs, loader, samples, seen


def test_a_pass_is_the_next_epoch() -> None:
    found = epochs(3)
    assert len({tuple(epoch) for epoch in found}) == 3
    assert all(sorted(sum(epoch, ())) == list(range(12)) for epoch in found)


def test_a_loader_in_order_has_other_numbers_in_every_pass() -> None:
    batches = loader(shuffle=False)
    first, second = ([fingerprint(batch) for batch in batches] for _ in range(2))
    assert not set(first) & set(second)


@pytest.mark.parametrize("epoch", [0, 4])
def test_a_fixed_epoch_is_the_same_at_every_pass(epoch: int) -> None:
    batches = loader(epoch=epoch)
    batches.set_epoch(2)
    assert [seen(batches) for _ in range(2)] == [epochs(5)[epoch]] * 2


@pytest.mark.parametrize("taken", [1, 3, 6])
def test_after_a_break_another_pass_is_the_next_epoch(taken: int) -> None:
    batches = loader()
    for _, _ in zip(range(taken), batches, strict=False):
        pass
    assert seen(batches) == epochs(2)[1]


def test_two_passes_at_once_are_both_right() -> None:
    batches = loader()
    together = list(zip(batches, batches, strict=True))
    assert [seen(one for one, _ in together), seen(other for _, other in together)] == epochs(2)


@pytest.mark.parametrize(
    ("named", "given"),
    [
        ([0, 1, 2], [0, 1, 2]),
        ([3, 4, 4], [3, 4, 5]),  # two passes in one epoch of the library's
        ([0, None, 1, None, 2], [0, 1, 2, 3, 4]),  # the shorter of two loaders in Lightning
        ([1, None, 2], [1, 2, 3]),  # MONAI, which counts from 1
        ([2, 0, 0], [2, 3, 4]),  # one that counts from 0 again
        ([None, 5, None], [0, 5, 6]),
    ],
)
def test_no_two_passes_give_the_same_epoch(named: list[int | None], given: list[int]) -> None:
    counting = Epochs()
    found = []
    for name in named:
        if name is not None:
            counting.set_epoch(name)
        found.append(counting.begin(counting.name)[0])
    assert found == given


#: A state saved in epoch 3, which the library called 1 -> what it names in the resumed run -> the
#: pass that follows.
RESTS: dict[str, tuple[Rest, list[tuple[str, int]], tuple[int, bool]]] = {
    "nothing is named": (Rest(3, 1, False, False), [], (3, True)),
    "the same epoch": (Rest(3, 1, False, False), [("loader", 1)], (3, True)),
    "the next one, by the user": (Rest(3, 1, False, False), [("loader", 2)], (4, False)),
    "the next one, by Lightning": (Rest(3, 1, False, False), [("iter", 0), ("sampler", 2)], (4, False)),
    "the next one, by MONAI, in a pass that stays open": (
        Rest(3, 1, False, False),
        [("sampler", 2), ("iter", 0)],
        (3, True),
    ),
    "the next one, by MONAI, of a pass that was left": (
        Rest(3, 1, False, True),
        [("sampler", 2), ("iter", 0)],
        (4, False),
    ),
    "from 0 again": (Rest(3, 1, False, False), [("loader", 0)], (3, True)),
    "its own number, never named before": (Rest(3, None, False, False), [("loader", 3)], (3, True)),
    "a later number, never named before": (Rest(3, None, False, False), [("loader", 6)], (6, False)),
    "all batches taken": (Rest(3, 1, True, False), [], (4, False)),
    "all batches taken, and the same epoch": (Rest(3, 1, True, False), [("loader", 1)], (3, True)),
    "all batches taken, and the next one": (Rest(3, 1, True, False), [("loader", 2)], (4, False)),
}  # fmt: skip


@pytest.mark.parametrize(("rest", "calls", "expected"), RESTS.values(), ids=RESTS)
def test_which_epoch_a_resumed_run_goes_on_with(
    rest: Rest, calls: list[tuple[str, int]], expected: tuple[int, bool]
) -> None:
    counting = Epochs()
    counting.load(4, rest)
    at_iter = None
    has_iterated = False
    for caller, epoch in calls:
        if caller == "iter":
            at_iter = counting.name
            has_iterated = True
        else:
            counting.set_epoch(epoch, is_firm=caller == "loader")
    assert counting.begin(at_iter if has_iterated else counting.name) == expected


def after(taken: int, of_epoch: int = 1, **options: Any) -> dict[str, Any]:
    """The state of a loader of which so many batches have been taken."""
    batches = loader(**options)
    for _ in range(of_epoch):
        seen(batches)
    passing = iter(batches)
    for _ in range(taken):
        next(passing)
    state: dict[str, Any] = json.loads(json.dumps(batches.state_dict()))
    return state


@pytest.mark.parametrize("taken", [0, 1, 5])
def test_a_state_of_mid_epoch_gives_its_rest_and_then_the_next(taken: int) -> None:
    batches = loader()
    batches.load_state_dict(after(taken))
    whole = epochs(3)
    assert len(batches) == 6, "len is that of a whole epoch, also before the rest of one"
    assert [seen(batches) for _ in range(2)] == [whole[1][taken:], whole[2]]


def test_a_state_of_before_the_first_batch_gives_everything() -> None:
    batches = loader()
    batches.load_state_dict(loader().state_dict())
    assert seen(batches) == epochs(1)[0]


def test_a_state_in_a_second_pass_goes_on_in_it() -> None:
    """As the shorter of two loaders has it in Lightning, which names one epoch for both passes."""
    batches = loader()
    batches.sampler.set_epoch(0)
    seen(batches)
    passing = iter(batches)
    first = [samples(next(passing)) for _ in range(2)]
    resumed = loader()
    resumed.load_state_dict(batches.state_dict())
    rest = iter(resumed)
    resumed.sampler.set_epoch(0)
    assert first + seen(rest) == epochs(2)[1]


def test_a_state_of_an_iterable_goes_on_where_it_was() -> None:
    def made() -> DataLoader[Any]:
        return DataLoader(Count(), 2, seed=1, check=False)

    batches = made()
    passing = iter(batches)
    next(passing)
    resumed = made()
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
        loader(seed=4).load_state_dict(after(3))
    with pytest.raises(StateMismatch, match="batch_size"):
        loader(batch_size=3).load_state_dict(after(3))


def test_a_batch_is_replayed() -> None:
    batches = loader()
    seen(batches)
    passing = iter(batches)
    second = [next(passing) for _ in range(3)]
    assert torch.equal(batches.replay(1, 2), second[2])
    assert samples(next(passing)) == epochs(2)[1][3]


def test_the_augmenter_is_there_for_whoever_wants_more() -> None:
    batches = loader(name="train")
    assert batches.augmenter.name == "train"
    assert batches.stats() == batches.augmenter.stats()
    batches.close()
    with pytest.raises(RuntimeError, match="closed"):
        next(iter(batches))


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_a_copy_stands_where_the_loader_does(copied: Any) -> None:
    assert seen(copied(loader())) == epochs(1)[0]
    batches = loader()
    passing = iter(batches)
    next(passing)
    assert seen(copied(batches)) == seen(passing)


def test_a_loader_that_was_only_made_has_drawn_nothing() -> None:
    before = torch.random.get_rng_state()
    len(loader(seed=None))
    assert torch.equal(torch.random.get_rng_state(), before)


# --- ranks, as far as they need no process group
# ------------------------------------------------------------------------


def ranks(number: int, length: int, **flags: Any) -> list[DataLoader[Any]]:
    drop_last = flags.pop("drop_last", False)
    return [
        loader(
            length,
            shuffle=None,
            drop_last=drop_last,
            sampler=DistributedSampler(Numbers(length), number, rank, **flags),
        )
        for rank in range(number)
    ]


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
    whole = epochs(2, length=14, shuffle=flags.get("shuffle", True))
    parts = ranks(2, 14, **flags)
    assert [len(part) for part in parts] == [len(share) for share in shares]
    for epoch in range(2):
        assert [seen(part) for part in parts] == [
            [whole[epoch][step] for step in share] for share in shares
        ]


def test_set_epoch_of_the_users_distributed_sampler_is_heard() -> None:
    (batches,) = ranks(1, 12)
    batches.sampler.set_epoch(2)
    assert seen(batches) == epochs(3)[2]
    batches.set_epoch(4)
    assert batches.sampler.epoch == 4
    assert seen(batches) == epochs(5)[4]


def test_a_state_of_two_ranks_goes_on_with_one() -> None:
    parts = ranks(2, 12)
    passes = [iter(part) for part in parts]
    whole = epochs(2)
    assert [samples(next(one)) for one in passes] == whole[0][:2]
    alone = loader()
    alone.load_state_dict(parts[0].state_dict())
    assert len(alone) == 6
    assert [seen(alone) for _ in range(2)] == [whole[0][2:], whole[1]]


class Halves(DistributedSampler[Any]):
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
    batches.load_state_dict(after(2, of_epoch=0))
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    whole = epochs(2)
    assert [seen(batches) for _ in range(2)] == [whole[0][3::2], whole[1][1::2]]
