"""`worker_init_fn`: called once in every process, in which it changes no number."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, get_worker_info

from tests.support.augmenters import Maker
from tests.support.comparing import prints
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
    expected = [*prints(none), *prints(none)]
    assert call.calls() == ["0 of 1\n"]
    call, three = opened(make, tmp_path / "three", 3)
    assert [*prints(three), *prints(three)] == expected
    wait_until(
        lambda: bool(prints(three)) and len(call.calls()) == 3,
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
