"""`detaug.DataLoader` prepared by Accelerate on two ranks.

python -m tests.peers.loops.accelerate_ranks FILE writes what this rank saw.
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
from tests.support.numbers import Numbers, loader, samples, seen


def prepared(length: int = 12, config: dict[str, Any] | None = None, **options: Any) -> Any:
    """Return an accelerator and a loader that it has prepared.

    Args:
        length: of the data set.
        config: of Accelerate.
        options: of the loader.
    """
    configuration = DataLoaderConfiguration(**(config or {}))
    accelerator = Accelerator(cpu=True, dataloader_config=configuration)
    return accelerator, accelerator.prepare(loader(length, **options))


def passes(count: int, **options: Any) -> list[Any]:
    """Return the batches that this rank sees in each pass over a prepared loader."""
    _, batches = prepared(**options)
    return [seen(batches) for _ in range(count)]


def gathered(length: int) -> list[int]:
    """Return the samples that an evaluation with gather_for_metrics counts."""
    accelerator, batches = prepared(length, batch_size=4, shuffle=False)
    counted: list[int] = []
    for batch in batches:
        counted.extend(samples(accelerator.gather_for_metrics(batch)))
    return sorted(counted)


def resumed(stateful: bool) -> list[Any]:
    """Return the rest of epoch 1 and epoch 2, resumed after the first batch of epoch 1."""
    config = {"use_stateful_dataloader": stateful}
    accelerator, batches = prepared(config=config)
    seen(batches)
    iterator = iter(batches)
    next(iterator)
    # Both ranks use the folder of rank 0.
    folder = [tempfile.mkdtemp()]
    torch.distributed.broadcast_object_list(folder)
    accelerator.save_state(folder[0])
    accelerator, batches = prepared(config=config)
    accelerator.load_state(folder[0])
    if stateful:
        return [seen(batches) for _ in range(2)]
    batches.set_epoch(1)
    rest = seen(accelerator.skip_first_batches(batches, 1))
    batches.set_epoch(2)
    return [rest, seen(batches)]


#: Indices that were asked of all copies of `Counting` in this process.
ASKED: list[int] = []


class Counting(Numbers):
    """A data set that records the indices of the items that are read."""

    def __getitem__(self, index: int) -> torch.Tensor:
        ASKED.append(index)
        return super().__getitem__(index)


def made_here() -> int:
    """Return how many of six batches this rank makes."""
    dataset = Counting()
    batches = Accelerator(cpu=True).prepare(DataLoader(dataset, 2, seed=1, check=False))
    assert len(seen(batches)) == 3
    return len(ASKED) // 2


def cases() -> Iterator[tuple[str, Any]]:
    """Yield the name of each case and what this rank saw."""
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
