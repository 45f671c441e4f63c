"""How long a batch takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any


def seconds_per_batch(
    batches: Iterator[Any],
    warmup: int,
    count: int,
    consume: Callable[[Any], object] | None = None,
    warmup_seconds: float = 0.0,
) -> float:
    """Steady-state seconds per batch for a consumer that asks for the next batch at once.

    Args:
        batches: an endless iterator.
        warmup: batches that are taken before the clock starts (processes start, buffers fill, caches warm up).
        count: batches that are timed.
        consume: called with every batch, inside the timed part.
        warmup_seconds: how long, at least, from the first batch until the clock starts.
    """
    # No pause may come between warming up and timing: buffers would fill, and the batches in them be counted for free.
    taken, settled = 0, 0.0
    while taken < warmup or time.perf_counter() < settled:
        batch = next(batches)
        if not taken:
            settled = time.perf_counter() + warmup_seconds
        taken += 1
        if consume is not None:
            consume(batch)
    begin = time.perf_counter()
    for _ in range(count):
        batch = next(batches)
        if consume is not None:
            consume(batch)
    elapsed = time.perf_counter() - begin
    del batch
    return elapsed / count
