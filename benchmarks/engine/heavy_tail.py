"""Row: what ordering costs when one batch in twenty takes ten times as long as the others."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from benchmarks.engine.loaders import HeavyTailLoader, ready_batch
from benchmarks.engine.systems import STOCK, SYSTEMS, batch_number_for
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import Settings
from detaug.tools.bench.systems import Workers
from detaug.tools.bench.timing import consume, in_fresh_process, interleaved

WARM_UP = 20
BATCHES = 300
ROUNDS = 5
#: Seconds that a batch takes that is not in the tail.
SECONDS = 0.040


def measure_heavy_tail(settings: Settings) -> Row:
    """Measure 25 MB batches, with as many cached as one slow batch holds back.

    While one worker makes a slow batch, each other one finishes ten. Any ordered engine has to keep
    those somewhere; with fewer places the loss belongs to the setting and not to the engine.
    """
    others = max(1, settings.workers.processes - 1)
    workers = replace(settings.workers, num_cached=HeavyTailLoader.TAIL_FACTOR * others)
    batches = settings.batches(BATCHES)
    seconds = interleaved(
        (OURS, STOCK),
        settings.rounds(ROUNDS),
        partial(in_fresh_process, _seconds, workers, batches),
    )
    return row_of(
        f"heavy-tailed cost, num_cached={workers.num_cached}",
        "batches/s",
        seconds,
        {
            "workers": workers,
            "batches": batches,
            "seconds": SECONDS,
            "tail_probability": HeavyTailLoader.TAIL_PROBABILITY,
            "tail_factor": HeavyTailLoader.TAIL_FACTOR,
        },
    )


def _seconds(workers: Workers, batches: int, system: str) -> float:
    loader = HeavyTailLoader(SECONDS, ready_batch(), batch_number_for(system))
    with SYSTEMS[system](loader, workers) as iterator:
        return consume(iterator, warm_up=WARM_UP, least=batches).seconds_per_batch
