"""Several ranks that sum gradients in one order, also after a resume."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn.parallel import DistributedDataParallel


@contextmanager
def buckets_stay() -> Iterator[None]:
    """Inside, `DistributedDataParallel` is made with ``find_unused_parameters=True`` where the caller does not say.

    Otherwise it rebuilds its gradient buckets after a process's first step. With three or more ranks the place of a
    gradient in its bucket decides in which order the ranks' gradients are summed, so that the first step of a process that
    resumed a training would round in another way than the same step of one that ran straight through.
    """
    original = DistributedDataParallel.__init__
    signature = inspect.signature(original)

    def made(self: Any, *arguments: Any, **options: Any) -> None:
        if "find_unused_parameters" not in signature.bind(self, *arguments, **options).arguments:
            options["find_unused_parameters"] = True
        original(self, *arguments, **options)

    DistributedDataParallel.__init__ = made  # type: ignore[method-assign]
    try:
        yield
    finally:
        DistributedDataParallel.__init__ = original  # type: ignore[method-assign]
