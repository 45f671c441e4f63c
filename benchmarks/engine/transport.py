"""Rows: how fast a ready 25 MB batch gets from a worker to the consumer.

A clone and a copy in one process are measured as well: no engine of this kind is much faster.
"""

from __future__ import annotations

import torch

from benchmarks.calls import Stopwatch, alternate
from benchmarks.engine.loaders import InSlotLoader, ReadyLoader, ready_batch
from benchmarks.engine.systems import STOCK, SYSTEMS, TORCH
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import Settings
from detaug.tools.bench.timing import consume, in_fresh_process, interleaved

NAMES = (OURS, STOCK, TORCH)
FLOOR = "clone + memcpy"
#: Batches that are not timed, and those that are in a round.
WARM_UP = 40
BATCHES = 300
ROUNDS = 7

#: In its first seconds detaug makes its slots and checks the first batches, which takes a core two
#: seconds once in a training. Afterwards it checks one batch in a hundred.
DETAUGS_WARM_UP = 5.0


def measure_transport(settings: Settings) -> Row:
    """Measure a consumer that takes each batch and lets the last one go."""
    return _measure("transport", settings, in_slot=False)


def measure_transport_in_slot(settings: Settings) -> Row:
    """Measure the same where detaug's loader makes its arrays where they travel."""
    return _measure("transport, made in the slot", settings, in_slot=True)


def _measure(name: str, settings: Settings, in_slot: bool) -> Row:
    batches = settings.batches(BATCHES)

    def measure(system: str) -> float:
        if system == FLOOR:
            return in_fresh_process(_clone_and_copy, batches)
        return in_fresh_process(_transport, system, settings, batches, in_slot)

    seconds = interleaved((*NAMES, FLOOR), settings.rounds(ROUNDS), measure)
    return row_of(name, "batches/s", seconds, {"workers": settings.workers, "batches": batches})


def _transport(system: str, settings: Settings, batches: int, in_slot: bool) -> float:
    """Return the seconds per batch."""
    is_ours = system == OURS
    kind = InSlotLoader if in_slot and is_ours else ReadyLoader
    warm_up_seconds = DETAUGS_WARM_UP if is_ours and not settings.quick else 0.0
    with SYSTEMS[system](kind(ready_batch()), settings.workers) as iterator:
        consumption = consume(
            iterator, warm_up=WARM_UP, warm_up_seconds=warm_up_seconds, least=batches
        )
    return consumption.seconds_per_batch


def _clone_and_copy(batches: int) -> float:
    """Return the seconds for cloning the batch and copying it into memory that is there already."""
    # One thread, as a worker has.
    torch.set_num_threads(1)
    batch = ready_batch()
    buffers = {name: torch.zeros_like(tensor) for name, tensor in batch.items()}

    def clone_and_copy(_: int, stopwatch: Stopwatch) -> None:
        with stopwatch:
            for name, tensor in batch.items():
                buffers[name].copy_(tensor.clone())

    timed = alternate({FLOOR: clone_and_copy}, range(WARM_UP + batches))[FLOOR][WARM_UP:]
    return sum(seconds.wall for seconds in timed) / batches
