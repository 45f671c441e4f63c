"""`worker_init_fn`: called once in every process, in which it changes no number."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import Dataset, get_worker_info

from detaug import BatchError, Skip
from tests.support.augmenters import Maker
from tests.support.comparing import fingerprints_of
from tests.support.processes import wait_until, worker_pids


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
    """A worker_init_fn as people write it: opens the copy's files, seeds everything; here it leaves
    a note as well.
    """

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
    return call, make.from_dataset(
        Opened(), 2, num_processes=n, seed=1, check=False, worker_init_fn=call
    )


def test_worker_init_fn_is_called_once_in_every_process_and_its_seeds_change_nothing(
    make: Maker, tmp_path: Path
) -> None:
    call, none = opened(make, tmp_path / "none", 0)
    expected = [*fingerprints_of(none), *fingerprints_of(none)]
    assert call.calls() == ["0 of 1\n"]
    call, three = opened(make, tmp_path / "three", 3)
    assert [*fingerprints_of(three), *fingerprints_of(three)] == expected
    wait_until(
        lambda: bool(fingerprints_of(three)) and len(call.calls()) == 3,
        "one that started late has made a batch",
    )
    assert call.calls() == ["0 of 3\n", "1 of 3\n", "2 of 3\n"]


def test_worker_init_fn_is_called_in_the_process_that_follows_a_dead_one(
    make: Maker, tmp_path: Path
) -> None:
    call, augmenter = opened(make, tmp_path / "dead", 1)
    next(augmenter)
    os.kill(worker_pids()[0], signal.SIGKILL)
    assert len(list(augmenter)) == 5
    assert call.calls() == ["0 of 1\n"] * 2


class FailsOnce(OpenIt):
    """Has begun to prepare the copy when it raises, the first time."""

    def __call__(self, worker_id: int) -> None:
        is_first = not self.calls()
        super().__call__(worker_id)
        if is_first:
            info = get_worker_info()
            assert info is not None
            info.dataset.opened_by = "a wrong file"
            raise OSError("the disk is busy")


class TellsWhoOpened(Opened):
    def __getitem__(self, i: int) -> Any:
        return str(self.opened_by)


@pytest.mark.parametrize("n", [0, 1])
def test_what_a_worker_init_fn_that_raised_has_left_makes_no_batch(
    make: Maker, tmp_path: Path, n: int
) -> None:
    (tmp_path / "calls").mkdir()
    call = FailsOnce(tmp_path / "calls")
    augmenter = make.from_dataset(
        TellsWhoOpened(),
        2,
        num_processes=n,
        seed=1,
        check=False,
        worker_init_fn=call,
        on_error=Skip(),
    )
    assert list(augmenter) == [["0", "0"]] * 5
    assert call.calls() == ["0 of 1\n0 of 1\n"]


def always_fails(_: int) -> None:
    raise OSError("the disk is busy")


@pytest.mark.parametrize("n", [0, 1])
def test_a_worker_init_fn_that_always_raises_fails_every_batch(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(
        TellsWhoOpened(), 2, num_processes=n, seed=1, check=False, worker_init_fn=always_fails
    )
    for _ in range(2):
        with pytest.raises(BatchError, match="the disk is busy"):
            next(augmenter)
        augmenter.set_epoch(augmenter.epoch + 1)


class FailsInEpoch(TellsWhoOpened):
    """Raises in ``set_epoch`` of epoch 1 after half of its work."""

    def set_epoch(self, epoch: int) -> None:
        self.opened_by = f"epoch {epoch}, half"
        if epoch == 1:
            raise OSError("the list of cases is gone")
        self.opened_by = f"epoch {epoch}"


@pytest.mark.parametrize("n", [0, 1])
def test_what_a_set_epoch_that_raised_has_left_makes_no_batch(make: Maker, n: int) -> None:
    augmenter = make.from_dataset(
        FailsInEpoch(), 2, num_processes=n, seed=1, check=False, on_error=Skip()
    )
    epochs = [list(augmenter) for _ in range(3)]
    assert epochs == [[["epoch 0"] * 2] * 6, [], [["epoch 2"] * 2] * 6]
