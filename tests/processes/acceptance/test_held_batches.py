"""Memory of a batch is never overwritten while anything of it lives."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import SlimDataLoaderBase

import detaug
from tests.support.augmenters import Maker
from tests.support.comparing import take
from tests.support.processes import Script
from tests.support.witness import WITNESS, assert_made_by_workers, witness


class Filled(SlimDataLoaderBase):
    """Arrays filled with the number of the step."""

    def __init__(self, shape: tuple[int, ...] = (64, 64)) -> None:
        super().__init__(None, 1)
        self.shape = shape

    def generate_train_batch(self) -> dict[str, Any]:
        step = detaug.current().step
        return {
            "array": np.full(self.shape, step, np.float64),
            "tensor": torch.full(self.shape, float(step)),
            "list": [np.full(self.shape, step, np.int64), {"deep": torch.full(self.shape, step)}],
            WITNESS: witness(),
        }


HOLD = """
    import resource
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
    class Filled(Loader):
        count = 0
        def __next__(self):
            from detaug import current
            step = current().step
            return {"a": np.full((64, 64), step), "b": [np.full(20000, step, np.float32)], "pid": os.getpid()}
    with augmenter(Filled(), num_processes=2) as aug:
        held = [next(aug) for _ in range(2000)]
        pids = {batch.pop("pid") for batch in held}
        assert os.getpid() not in pids
        for step, batch in enumerate(held):
            assert (batch["a"] == step).all() and (batch["b"][0] == step).all(), step
        print(len(os.listdir("/proc/self/fd")))
        del held, batch
        gc.collect()
        for step in range(2000, 2050):
            assert (next(aug)["a"] == step).all()
    print(len(os.listdir("/proc/self/fd")))
"""


@pytest.mark.timeout(120)
def test_two_thousand_batches_can_be_held_with_a_thousand_descriptors(script: Callable[..., Script]) -> None:
    held = script(HOLD, "fork")
    held.finish()
    assert held.err == ""
    assert held.process.returncode == 0
    while_held, after = map(int, held.lines)
    assert while_held < 100, "descriptors do not grow with the batches held"
    assert after <= while_held


KEEPERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "a corner of the array": (lambda b: b["array"][3:5, ::2], lambda k: k),
    "its memoryview": (lambda b: memoryview(b["array"]), np.asarray),
    "a tensor of the array": (lambda b: torch.from_numpy(b["array"]), lambda k: k.numpy()),
    "a detached view": (lambda b: b["tensor"].detach().view(-1), lambda k: k.numpy()),
    "the tensor's storage": (
        lambda b: b["tensor"].untyped_storage(), lambda k: np.frombuffer(bytes(k.tolist()), np.float32)),
    "one element of a list": (lambda b: b["list"][0], lambda k: k),
    "a tensor deep inside": (lambda b: b["list"][1]["deep"], lambda k: k.numpy()),
}  # fmt: skip


def test_any_view_keeps_its_batch_alive(make: Maker, mark: str) -> None:
    augmenter = make(Filled(), None, 2, seed=1)
    batches = take(augmenter, 2)
    assert_made_by_workers("fork", batches)
    del batches
    kept = [(what, keep(next(augmenter))) for _ in range(5) for what, (keep, _) in KEEPERS.items()]
    gc.collect()
    take(augmenter, 60)
    for step, (what, each) in enumerate(kept, start=2):
        assert (np.asarray(KEEPERS[what][1](each)) == step).all(), what


def test_writing_into_a_batch_reaches_no_other_batch(make: Maker) -> None:
    augmenter = make(Filled(), None, 2, seed=1)
    held = []
    for step in range(40):
        batch = next(augmenter)
        assert (batch["array"] == step).all()
        assert (batch["tensor"] == step).all()
        assert (batch["list"][0] == step).all()
        batch["array"][...] = -1
        batch["tensor"].fill_(-1)
        batch["list"][0][...] = -1
        held = [*held[-3:], batch]
    assert all((batch["array"] == -1).all() for batch in held)
