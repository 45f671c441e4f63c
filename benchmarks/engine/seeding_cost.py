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
    from detaug.seeding.branch import SeedBranch
    from detaug.seeding.global_generators import reseed_global_rngs
    from detaug.seeding.tree import SeedTree

    branch = SeedBranch.of(SeedTree(1), NUM_STREAMS)
    times = []
    for step in range(batches):
        begin = time.perf_counter()
        batch = branch.batch(3, step)
        reseed_global_rngs(batch.child)
        batch.generator  # noqa: B018  # makes it
        times.append(time.perf_counter() - begin)
    return median(times) * 1e6
