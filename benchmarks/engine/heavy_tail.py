"""Row: what ordering costs when one batch in twenty takes ten times as long as the others."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import torch

from benchmarks.engine.loaders import HeavyTailLoader, ready_batch
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SYSTEMS, batch_number_for
from benchmarks.engine.timing import seconds_per_batch
from benchmarks.report import Row, speed_checks
from detaug.bench.measuring import in_fresh_process, interleaved

NAMES = ("detaug", "NonDetMultiThreadedAugmenter", "MultiThreadedAugmenter")
WARMUP, BATCHES, ROUNDS = 20, 300, 5
BOUNDS = {"NonDetMultiThreadedAugmenter": 1.0}

#: While one worker sits on a batch of ten times the cost, the other finishes ten; any ordered engine has to keep those
#: somewhere. With fewer places than that, the loss belongs to the setting and not to the engine.
COVERING = 10


def measure_heavy_tail(settings: Settings) -> Row:
    """25 MB batches, with as many cached as one slow batch holds back."""
    covering = COVERING * max(1, settings.processes - 1)
    return _measure(
        "heavy-tailed cost", replace(settings, num_cached=covering), 0.040, ready_batch(), BOUNDS
    )


def _measure(
    name: str,
    settings: Settings,
    base: float,
    batch: dict[str, torch.Tensor] | None,
    bounds: dict[str, float],
) -> Row:
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    seconds = interleaved(
        NAMES,
        rounds,
        lambda system: in_fresh_process(_seconds, system, settings, base, batch, batches),
    )
    return Row(
        name=f"{name}, num_cached={settings.num_cached}",
        unit="batches/s",
        ours=1 / median(seconds["detaug"]),
        checks=speed_checks(seconds, bounds),
        repeats=rounds,
        settings={
            "processes": settings.processes,
            "num_cached": settings.num_cached,
            "batches": batches,
            "base_seconds": base,
            "tail_probability": HeavyTailLoader.TAIL_PROBABILITY,
            "tail_factor": HeavyTailLoader.TAIL_FACTOR,
        },
        details={"seconds_per_batch": seconds},
    )


def _seconds(
    system: str,
    settings: Settings,
    base: float,
    batch: dict[str, torch.Tensor] | None,
    batches: int,
) -> float:
    with SYSTEMS[system](
        HeavyTailLoader(base, batch, batch_number_for(system)), settings
    ) as iterator:
        return seconds_per_batch(iterator, WARMUP, batches)
