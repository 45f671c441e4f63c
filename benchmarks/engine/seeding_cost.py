"""Row: what it costs to make a batch's randomness its own."""

from __future__ import annotations

import time
from statistics import median

from benchmarks.engine.settings import Settings
from benchmarks.measure import in_fresh_process
from benchmarks.report import Check, Row

BATCHES, ROUNDS = 1000, 7
NUM_STREAMS = 12
TARGET = 100.0  # µs


def measure_seeding_cost(settings: Settings) -> Row:
    """Microseconds to derive a batch's SeedSequence child, reseed the global generators and make its Generator."""
    rounds = settings.rounds(ROUNDS)
    measured = [in_fresh_process(_microseconds, BATCHES) for _ in range(rounds)]
    return Row(
        name="seeding one batch",
        unit="µs",
        ours=median(measured),
        checks=[Check("the target", None, median(measured), (min(measured), max(measured)), "<=", TARGET)],
        repeats=rounds,
        settings={"batches": BATCHES},
    )


def _microseconds(batches: int) -> float:
    """The median over batches, so that a batch during which the core was taken away does not count."""
    from detaug.seeding.current import Current
    from detaug.seeding.global_generators import reseed_global_rngs
    from detaug.seeding.tree import SeedTree

    entropy = tuple(SeedTree(1).entropy)
    times = []
    for step in range(batches):
        turn, stream = divmod(step, NUM_STREAMS)
        begin = time.perf_counter()
        batch = Current(entropy, 3, stream, turn, NUM_STREAMS)
        reseed_global_rngs(batch.child)
        batch.generator  # noqa: B018  # makes it
        times.append(time.perf_counter() - begin)
    return median(times) * 1e6
