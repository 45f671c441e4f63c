"""Samplers, weights and batch samplers of `from_dataset`, and `worker_init_fn`: whatever gives the order, a batch is a pure
function of (seed, epoch, step)."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    Dataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    get_worker_info,
)

from detaug import BatchError, LocalProcesses, StateMismatch
from detaug.engine.inspection import inspected
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take, through_json
from tests.support.loaders import Samples

LENGTH = 17


class Told(SubsetRandomSampler):
    """Its order depends on the epoch that it is told."""

    def set_epoch(self, epoch: int) -> None:
        self.indices = self.indices[epoch % 3 :] + self.indices[: epoch % 3]


ORDERS: dict[str, dict[str, Any]] = {
    "random": {"batch_size": 3, "sampler": RandomSampler(Samples(LENGTH))},
    "own generator": {"batch_size": 3, "sampler": RandomSampler(range(LENGTH), generator=torch.Generator())},
    "subset": {"batch_size": 3, "sampler": SubsetRandomSampler(range(3, 16))},
    "weighted": {"batch_size": 3, "sampler": WeightedRandomSampler(np.arange(LENGTH).tolist(), 14)},
    "told the epoch": {"batch_size": 3, "sampler": Told(list(range(LENGTH)))},
    "list": {"batch_size": 3, "sampler": [*range(LENGTH), 3, 2, 1]},
    "weights": {"batch_size": 3, "weights": np.arange(LENGTH)},
    "batches": {"batch_sampler": BatchSampler(RandomSampler(range(LENGTH)), 3, False)},
    "buckets": {"batch_sampler": [[0, 4, 5], [1], [2, 3], [6, 7, 8, 9], [16, 10], [12, 13]]},
}
ANY = pytest.mark.parametrize("options", ORDERS.values(), ids=ORDERS)


def from_dataset(make: Maker, options: dict[str, Any], n: int, **others: Any) -> Any:
    return make.from_dataset(Samples(LENGTH), num_processes=n, seed=1, **options, **others)


@ANY
def test_two_epochs_are_the_same_for_any_workers(make: Maker, options: dict[str, Any]) -> None:
    runs = []
    for n in (0, 3):
        augmenter = from_dataset(make, options, n)
        epochs = [prints(augmenter), prints(augmenter)]
        assert [len(epoch) for epoch in epochs] == [len(augmenter)] * 2
        runs.append(epochs)
    assert runs[0] == runs[1]
    assert runs[0][0] != runs[0][1]


@ANY
def test_a_resume_in_mid_epoch_and_a_replay_give_what_a_whole_run_gives(make: Maker, options: dict[str, Any]) -> None:
    whole = from_dataset(make, options, 0)
    expected = [prints(whole), prints(whole)]
    first = from_dataset(make, options, 2)
    assert prints(first) + prints(take(first, 2)) == expected[0] + expected[1][:2]
    resumed = from_dataset(make, options, 3)
    resumed.load_state_dict(through_json(first.state_dict()))
    assert prints(resumed) == expected[1][2:]
    assert prints([resumed.replay(1, 1)]) == [expected[1][1]]


@ANY
def test_ranks_share_an_epoch_out(make: Maker, options: dict[str, Any]) -> None:
    expected = prints(from_dataset(make, options, 0))
    ranks = [prints(from_dataset(make, options, 2, rank=r, world_size=2, tail="uneven")) for r in (0, 1)]
    assert [ranks[step % 2][step // 2] for step in range(len(expected))] == expected


def test_spawned_workers_draw_the_same_order(make: Maker) -> None:
    for name in ("own generator", "told the epoch", "weights", "batches"):
        spawned = from_dataset(make, ORDERS[name], 2, executor=LocalProcesses("spawn"))
        assert prints(spawned) == prints(from_dataset(make, ORDERS[name], 0))


def test_a_state_of_another_sampler_is_refused(make: Maker) -> None:
    states = {name: from_dataset(make, options, 0).state_dict() for name, options in ORDERS.items()}
    for name, options in ORDERS.items():
        from_dataset(make, options, 0).load_state_dict(states[name])
    for name, other, named in [
        ("random", "subset", "sampler"),
        ("list", "told the epoch", "sampler"),
        ("weights", "weighted", "weights"),
        ("batches", "buckets", "batch_sampler"),
    ]:
        with pytest.raises(StateMismatch, match=named):
            from_dataset(make, ORDERS[name], 0).load_state_dict(states[other])
    with pytest.raises(StateMismatch, match="weights"):
        from_dataset(make, {"batch_size": 3, "weights": [1] * LENGTH}, 0).load_state_dict(states["weights"])


class Failing(Samples):
    def __getitem__(self, i: int) -> Any:
        if i == 7:
            raise OSError("no such case")
        return super().__getitem__(i)


def test_an_error_names_the_data_sets_index(make: Maker) -> None:
    augmenter = make.from_dataset(Failing(LENGTH), batch_sampler=[[1, 2], [3, 7, 4]], num_processes=1, seed=1)
    with pytest.raises(BatchError) as raised:
        list(augmenter)
    assert list(raised.value.indices) == [7]


class Opened(Dataset[Any]):
    """Works once `open_it` has been called on this copy."""

    opened_by: Any = None

    def __len__(self) -> int:
        return 12

    def __getitem__(self, i: int) -> Any:
        assert self.opened_by is not None
        assert get_worker_info() is None, "a sample would depend on the worker"
        return torch.tensor([i, int(torch.randint(10**6, ()))])


class OpenIt:
    """A worker_init_fn as people write it: opens the copy's files, seeds everything; here it leaves a note as well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, worker_id: int) -> None:
        info = get_worker_info()
        assert info is not None
        assert info.id == worker_id
        info.dataset.opened_by = worker_id
        np.random.seed(worker_id)
        torch.manual_seed(worker_id)
        with (self.folder / f"{os.getpid()}").open("a") as file:
            file.write(f"{worker_id} of {info.num_workers}\n")

    def calls(self) -> list[str]:
        return sorted(file.read_text() for file in self.folder.iterdir())


def opened(make: Maker, folder: Path, n: int) -> tuple[OpenIt, Any]:
    folder.mkdir()
    call = OpenIt(folder)
    return call, make.from_dataset(Opened(), 2, num_processes=n, seed=1, check=False, worker_init_fn=call)


def test_worker_init_fn_is_called_once_in_every_process_and_its_seeds_change_nothing(
    make: Maker, tmp_path: Path
) -> None:
    call, none = opened(make, tmp_path / "none", 0)
    expected = [*prints(none), *prints(none)]
    assert call.calls() == ["0 of 1\n"]
    call, three = opened(make, tmp_path / "three", 3)
    assert [*prints(three), *prints(three)] == expected
    given_up = time.monotonic() + 60
    while len(call.calls()) < 3 and time.monotonic() < given_up:  # one may have started late
        prints(three)
    assert call.calls() == ["0 of 3\n", "1 of 3\n", "2 of 3\n"]


def test_worker_init_fn_is_called_in_the_process_that_follows_a_dead_one(make: Maker, tmp_path: Path) -> None:
    call, augmenter = opened(make, tmp_path / "dead", 1)
    next(augmenter)
    os.kill(inspected(augmenter).engine.worker_pids()[0], signal.SIGKILL)
    assert len(list(augmenter)) == 5
    assert call.calls() == ["0 of 1\n"] * 2
