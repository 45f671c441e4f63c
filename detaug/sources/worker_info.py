"""What `torch.utils.data.get_worker_info()` says to a data set that asks which worker's copy it is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils.data._utils import worker as torch_worker


@contextmanager
def worker_info(number: int, total: int, seed: int, dataset: Any) -> Iterator[None]:
    """Inside, code runs as in worker `number` of `total` of a torch DataLoader, which sets the same variable."""
    before = torch_worker._worker_info
    torch_worker._worker_info = torch_worker.WorkerInfo(id=number, num_workers=total, seed=seed, dataset=dataset)
    try:
        yield
    finally:
        torch_worker._worker_info = before
