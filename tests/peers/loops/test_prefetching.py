"""`prefetch_to`: the loader's batches in their order, on a device."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
import torch

from detaug import fingerprint
from detaug.loops import prefetch_to
from tests.peers.loops.numbers import epochs, loader, samples

Pair = namedtuple("Pair", "image label")

DEVICES = [
    "cpu",
    pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")),
]
BATCHES = [
    {
        "image": torch.full((2, 3), float(i)),
        "more": [torch.tensor(i), (torch.ones(1), "name")],
        "pair": Pair(torch.ones(2), i),
    }
    for i in range(5)
]


@pytest.mark.parametrize("device", DEVICES)
def test_batches_keep_their_order_and_their_containers(device: str) -> None:
    moved = list(prefetch_to(BATCHES, device))
    assert len(prefetch_to(BATCHES, device)) == 5
    for batch, given in zip(moved, BATCHES, strict=True):
        assert batch["image"].device.type == batch["more"][1][0].device.type == device
        assert batch["more"][1][1] == "name"
        assert type(batch["pair"]) is Pair
        on_cpu = {
            "image": batch["image"].cpu(),
            "more": [batch["more"][0].cpu(), (batch["more"][1][0].cpu(), "name")],
        }
        assert fingerprint(on_cpu) == fingerprint({name: given[name] for name in ("image", "more")})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("taken", [1, 3])
def test_a_state_is_behind_the_batch_that_the_loop_has(device: str, taken: int) -> None:
    expected = epochs(2)
    batches = prefetch_to(loader(2), device)
    got = [samples(_on_cpu(batch)) for _, batch in zip(range(taken), batches, strict=False)]
    state = batches.state_dict()
    assert got == expected[0][:taken]
    resumed = prefetch_to(loader(), device)
    resumed.load_state_dict(state)
    assert [samples(_on_cpu(batch)) for batch in resumed] == expected[0][taken:]
    resumed.set_epoch(1)
    assert [samples(_on_cpu(batch)) for batch in resumed] == expected[1]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_a_copy_overlaps_the_step_and_the_step_sees_all_of_it() -> None:
    large = [torch.full((64, 1024, 1024), float(i)) for i in range(6)]
    for number, batch in enumerate(prefetch_to(large, "cuda")):
        torch.cuda._sleep(10**8)
        assert (batch == number).all()


def _on_cpu(batch: Any) -> Any:
    if isinstance(batch, dict):
        return {name: _on_cpu(value) for name, value in batch.items()}
    return batch.cpu() if isinstance(batch, torch.Tensor) else batch
