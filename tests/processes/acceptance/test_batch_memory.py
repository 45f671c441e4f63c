"""detaug.current().empty: the same batches as with ordinary arrays, whatever the loader does with them."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import DataLoader

import detaug
from tests.support.augmenters import Maker
from tests.support.comparing import prints, take

SIDES = (2, 1, 20, 30, 40)


class InTheSlot(DataLoader):
    """Fills arrays of `current().empty`, or with `ordinary` those of NumPy."""

    def __init__(self, ordinary: bool = False) -> None:
        super().__init__(None, 2, infinite=True)
        self.ordinary = ordinary

    def array(self, dtype: Any) -> np.ndarray[Any, Any]:
        return np.empty(SIDES, dtype) if self.ordinary else detaug.current().empty(SIDES, dtype)

    def generate_train_batch(self) -> dict[str, Any]:
        now = detaug.current()
        data, target = self.array(np.float32), self.array(np.int16)
        data[...] = now.generator.random(SIDES, dtype=np.float32)
        target[...] = now.generator.integers(0, 4, SIDES)
        return {"data": data, "target": torch.from_numpy(target), "number": now.step}


class InPlace:
    def __call__(self, **batch: Any) -> dict[str, Any]:
        batch["data"] *= 2.0
        batch["target"] += 1
        return batch


@pytest.mark.parametrize("transform", [None, InPlace()], ids=["no transform", "in place"])
def test_batches_are_those_of_ordinary_arrays(make: Maker, transform: Any) -> None:
    options: dict[str, Any] = {"seed": 11, "batches_per_epoch": 12, "check": True}
    expected = prints(take(make(InTheSlot(ordinary=True), transform, 0, **options), 12))
    assert prints(take(make(InTheSlot(), transform, 2, **options), 12)) == expected


class Forks(DataLoader):
    def __init__(self) -> None:
        super().__init__(None, 1, infinite=True)

    def generate_train_batch(self) -> dict[str, Any]:
        mine = detaug.current().empty(SIDES)
        pid = os.fork()
        if pid == 0:
            theirs = detaug.current().empty(SIDES)
            theirs[...] = 1.0
            os._exit(int(not theirs.flags.owndata))
        mine[...] = os.waitpid(pid, 0)[1]
        return {"data": mine}


def test_a_process_that_the_loader_forks_has_memory_of_its_own(make: Maker) -> None:
    for batch in take(make(Forks(), None, 1, seed=1), 3):
        assert (batch["data"] == 0).all()
