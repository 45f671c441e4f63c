"""What Accelerate's two ranks see of `detaug.DataLoader`: python -m
tests.peers.loops.accelerate_ranks FILE.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from accelerate import Accelerator, DataLoaderConfiguration

from detaug import DataLoader
from tests.support.numbers import Numbers, loader, seen


def prepared(length: int = 12, config: dict[str, Any] | None = None, **options: Any) -> Any:
    configuration = DataLoaderConfiguration(**(config or {}))
    accelerator = Accelerator(cpu=True, dataloader_config=configuration)
    return accelerator, accelerator.prepare(loader(length, **options))


def passes(number: int, **options: Any) -> list[Any]:
    _, batches = prepared(**options)
    return [seen(batches) for _ in range(number)]


def gathered(length: int) -> list[int]:
    """What an evaluation with gather_for_metrics counts."""
    accelerator, batches = prepared(length, batch_size=4, shuffle=False)
    found: list[int] = []
    for batch in batches:
        found += accelerator.gather_for_metrics(batch)[:, 0].int().tolist()
    return sorted(found)


def resumed(stateful: bool) -> list[Any]:
    config = {"use_stateful_dataloader": stateful}
    accelerator, batches = prepared(config=config)
    seen(batches)
    passing = iter(batches)
    next(passing)
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    accelerator.save_state(folder[0])
    accelerator, batches = prepared(config=config)
    accelerator.load_state(folder[0])
    if stateful:
        return [seen(batches) for _ in range(2)]
    batches.set_epoch(1)
    first = seen(accelerator.skip_first_batches(batches, 1))
    batches.set_epoch(2)
    return [first, seen(batches)]


ASKED: list[int] = []


class Counting(Numbers):
    """Items that note which were asked for; all copies of them do it here."""

    def __getitem__(self, index: int) -> torch.Tensor:
        ASKED.append(index)
        return super().__getitem__(index)


def made_here() -> int:
    """How many batches this rank makes of six."""
    dataset = Counting()
    batches = Accelerator(cpu=True).prepare(DataLoader(dataset, 2, seed=1, check=False))
    assert len(seen(batches)) == 3
    return len(ASKED) // 2


def cases() -> Iterator[tuple[str, Any]]:
    yield "seven batches", passes(2, length=14)
    yield "seven batches, sharded before", passes(2, length=14, shard=True)
    yield "dispatched", passes(2, length=14, config={"dispatch_batches": True})
    yield "the last round dropped", passes(1, length=14, drop_last=True)
    yield "a smaller last batch", passes(1, length=10, batch_size=4)
    yield "split batches", passes(1, length=12, batch_size=4, config={"split_batches": True})
    yield "gathered", {length: gathered(length) for length in (10, 12, 20)}
    torch.manual_seed(torch.distributed.get_rank())
    yield "a drawn seed", passes(1, seed=None, name="drawn")
    for stateful in (False, True):
        yield f"resumed, stateful={stateful}", resumed(stateful)
    yield "made here", made_here()


if __name__ == "__main__":
    Accelerator(cpu=True)
    Path(sys.argv[1]).write_text(json.dumps(dict(cases())))
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
