"""Rows: batches of one integer, where nothing counts but what the engine does for each."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

from benchmarks.engine.loaders import Integers
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SYSTEMS
from benchmarks.measure import Ratio, in_fresh_process, interleaved, seconds_per_batch
from benchmarks.report import Row, ratio_check, speed_checks

NAMES = ("detaug", "NonDetMultiThreadedAugmenter")
WARMUP, BATCHES, ROUNDS = 500, 50_000, 7
WINDOWS = (4, 20, 200, 2000)  # batches in the making or waiting

#: detaug's batches/s over NonDet's.
BOUND = 1.0
#: Seconds per batch with the largest window over those with the smallest.
FLAT = 1.1


def measure_tiny_batches(settings: Settings) -> Row:
    """Batches/s at `settings.processes`, against NonDetMultiThreadedAugmenter."""
    return _against_nondet(settings)


def measure_tiny_batches_of_sixteen(settings: Settings) -> Row:
    """The same with 16 processes, however few cores there are."""
    return _against_nondet(replace(settings, processes=16))


def measure_window(settings: Settings) -> Row:
    """Batches/s as the window grows; each window is set against the smallest."""
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    by_name = {f"window {window}": window for window in WINDOWS}

    def one(name: str) -> float:
        cached = replace(settings, num_cached=by_name[name] - settings.processes)
        # What waits when the rate is first known is taken before it counts.
        return in_fresh_process(tiny_seconds, "detaug", cached, batches, WARMUP + 2 * by_name[name])

    seconds = interleaved(tuple(by_name), rounds, one)
    smallest, *larger = by_name
    return Row(
        name="one integer, larger windows",
        unit="batches/s",
        ours=1 / median(seconds[smallest]),
        checks=[
            ratio_check(name, 1 / median(seconds[name]), Ratio.of(seconds[name], seconds[smallest]), "<=", FLAT)
            for name in larger
        ],
        repeats=rounds,
        settings={"processes": settings.processes, "batches": batches},
        details={"seconds_per_batch": seconds},
    )


def _against_nondet(settings: Settings) -> Row:
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    seconds = interleaved(NAMES, rounds, lambda system: in_fresh_process(tiny_seconds, system, settings, batches))
    return Row(
        name=f"one integer, {settings.processes} processes",
        unit="batches/s",
        ours=1 / median(seconds["detaug"]),
        checks=speed_checks(seconds, {"NonDetMultiThreadedAugmenter": BOUND}),
        repeats=rounds,
        settings={"processes": settings.processes, "num_cached": settings.num_cached, "batches": batches},
        details={"seconds_per_batch": seconds},
    )


def tiny_seconds(system: str, settings: Settings, batches: int, warmup: int = WARMUP) -> float:
    """Seconds per batch of one system, measured in this process."""
    with SYSTEMS[system](Integers(), settings) as iterator:
        return seconds_per_batch(iterator, warmup, batches, None)
