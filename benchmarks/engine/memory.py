"""Row: the peak memory of parent and workers together, and whether it stays where it is."""

from __future__ import annotations

import multiprocessing
import time
from statistics import median
from typing import Any

from benchmarks.engine.loaders import ReadyLoader, ready_batch
from benchmarks.engine.process_memory import Memory, sleep_until, tree_memory
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SYSTEMS
from benchmarks.report import Row, ratio_check
from detaug.bench.measuring import Ratio, interleaved, result_of, start_fresh_process

STOCK = "NonDetMultiThreadedAugmenter"
NAMES = ("detaug", STOCK)
BATCHES, EARLY, ROUNDS = 2000, 200, 3
SAMPLE_EVERY = 0.05  # seconds
PAUSE_EVERY, PAUSE = (
    50,
    0.4,
)  # batches, seconds: the consumer stops now and then, so that every buffer fills

#: "Flat" is judged by the peak of the last `EARLY` batches over that of the first; single pages come and go.
FLAT = 1.02


def measure_memory(settings: Settings) -> Row:
    """PSS of the whole process tree over 2,000 batches of 25 MB, sampled from outside."""
    rounds = settings.rounds(ROUNDS)
    batches = settings.batches(BATCHES)
    early = min(EARLY, batches // 2)
    runs = interleaved(NAMES, rounds, lambda system: _peaks(system, settings, batches, early))
    peak = {name: [run["peak"] for run in runs[name]] for name in NAMES}
    start, end = ([run[part] for run in runs["detaug"]] for part in ("early", "late"))
    return Row(
        name="peak memory (PSS)",
        unit="MB",
        ours=median(peak["detaug"]) / 1e6,
        checks=[
            ratio_check(
                STOCK,
                median(peak[STOCK]) / 1e6,
                Ratio.of(peak["detaug"], peak[STOCK]),
                "<=",
                1.0,
            ),
            ratio_check(
                f"its first {early} batches", median(start) / 1e6, Ratio.of(end, start), "<=", FLAT
            ),
        ],
        repeats=rounds,
        settings={
            "processes": settings.processes,
            "num_cached": settings.num_cached,
            "batches": batches,
            "sample_every_seconds": SAMPLE_EVERY,
            "pause": [PAUSE_EVERY, PAUSE],
        },
        details={"bytes": runs},
    )


def _peaks(system: str, settings: Settings, batches: int, early: int) -> dict[str, Any]:
    """Bytes: the peak PSS of the whole run, of its first `early` batches and of its last, and PSS at both counts."""
    taken = multiprocessing.get_context("fork").RawValue("q", 0)
    process, receiver = start_fresh_process(_consume, system, settings, batches, taken)
    samples: list[tuple[int, Memory]] = []
    due = time.monotonic()
    while not receiver.poll():
        if process.exitcode is not None:
            break
        if 0 < taken.value < batches:
            before = taken.value
            samples.append((before, tree_memory(process.pid)))
        due = max(due + SAMPLE_EVERY, time.monotonic())
        sleep_until(due)
    result_of(process, receiver)
    first = [memory.pss for count, memory in samples if count <= early]
    last = [memory.pss for count, memory in samples if count > batches - early]
    return {
        "peak": max(memory.pss for _, memory in samples),
        "peak_with_unmapped": max(memory.pss + memory.unmapped for _, memory in samples),
        "early": max(first),
        "late": max(last),
        "samples": len(samples),
    }


def _consume(system: str, settings: Settings, batches: int, taken: Any) -> None:
    with SYSTEMS[system](ReadyLoader(ready_batch()), settings) as iterator:
        for number in range(1, batches + 1):
            batch = next(iterator)
            taken.value = number
            if number % PAUSE_EVERY == 0:
                time.sleep(PAUSE)
        del batch
