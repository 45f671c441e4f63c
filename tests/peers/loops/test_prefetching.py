"""`prefetch_to` moves a loader's batches to a device and keeps their order."""

from __future__ import annotations

from collections import namedtuple
from itertools import islice
from typing import Any

import pytest
import torch

from detaug import fingerprint
from detaug.loops import prefetch_to
from tests.peers.loops.numbers import epochs, loader
from tests.support.numbers import samples

Pair = namedtuple("Pair", "image label")

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=needs_gpu)]


def nested_batch(number: int) -> dict[str, Any]:
    """Return a batch with tensors in all kinds of containers."""
    return {
        "image": torch.full((2, 3), float(number)),
        "more": [torch.tensor(number), (torch.ones(1), "name")],
        "pair": Pair(torch.ones(2), number),
    }


def on_cpu(batch: Any) -> Any:
    """Return a batch whose tensors are on the CPU."""
    if isinstance(batch, dict):
        return {name: on_cpu(value) for name, value in batch.items()}
    if isinstance(batch, torch.Tensor):
        return batch.cpu()
    return batch


@pytest.mark.parametrize("device", DEVICES)
def test_batches_keep_their_order_and_their_containers(device: str) -> None:
    batches = [nested_batch(number) for number in range(5)]
    assert len(prefetch_to(batches, device)) == 5
    moved_batches = list(prefetch_to(batches, device))
    for moved, batch in zip(moved_batches, batches, strict=True):
        tensor, (nested, name) = moved["more"]
        assert moved["image"].device.type == device
        assert nested.device.type == device
        assert name == "name"
        assert type(moved["pair"]) is Pair
        arrays = {"image": moved["image"].cpu(), "more": [tensor.cpu(), (nested.cpu(), name)]}
        expected = {"image": batch["image"], "more": batch["more"]}
        assert fingerprint(arrays) == fingerprint(expected)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_taken", [1, 3])
def test_a_state_is_behind_the_batch_that_the_loop_has(device: str, num_taken: int) -> None:
    first, second = epochs(2)
    batches = prefetch_to(loader(2), device)
    begun = [samples(on_cpu(batch)) for batch in islice(batches, num_taken)]
    state = batches.state_dict()
    assert begun == first[:num_taken]
    resumed = prefetch_to(loader(), device)
    resumed.load_state_dict(state)
    assert [samples(on_cpu(batch)) for batch in resumed] == first[num_taken:]
    resumed.set_epoch(1)
    assert [samples(on_cpu(batch)) for batch in resumed] == second


@needs_gpu
def test_a_copy_overlaps_the_step_and_the_step_sees_all_of_it() -> None:
    large = [torch.full((64, 1024, 1024), float(number)) for number in range(6)]
    for number, batch in enumerate(prefetch_to(large, "cuda")):
        torch.cuda._sleep(10**8)
        assert (batch == number).all()
