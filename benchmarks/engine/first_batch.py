"""Row: how long it takes from making the augmenter to holding its first batch."""

from __future__ import annotations

from functools import partial

from benchmarks.calls import Stopwatch
from benchmarks.engine.loaders import ReadyLoader, ready_batch
from benchmarks.engine.systems import STOCK, SYSTEMS, TORCH
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import Settings
from detaug.tools.bench.systems import Workers
from detaug.tools.bench.timing import in_fresh_process, interleaved

ROUNDS = 15


def measure_first_batch(settings: Settings) -> Row:
    """Measure with a loader that clones a ready batch: starting is all there is to wait for."""
    seconds = interleaved(
        (OURS, STOCK, TORCH),
        settings.rounds(ROUNDS),
        partial(in_fresh_process, _seconds, settings.workers),
    )
    return row_of("first batch, ready loader", "ms", seconds, {"workers": settings.workers})


def _seconds(workers: Workers, system: str) -> float:
    loader = ReadyLoader(ready_batch())
    started = Stopwatch()
    with started:
        # Not a ``with`` block: its end, which stops the workers, is not timed.
        running = SYSTEMS[system](loader, workers)
        next(running.__enter__())
    running.__exit__(None, None, None)
    return started.wall
