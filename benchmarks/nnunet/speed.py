"""Rows: reading and augmenting a batch in one process, on one thread.

What nnU-Net's gates draw makes one batch cost ten times another, and whether it rotates and scales is most of that. So
the gates of these two are set, to each of the four outcomes as often as their probabilities say, and the rest is drawn;
both systems have the same gates in the same order.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import (
    DETAUG,
    P_ROTATION,
    P_SCALING,
    SEED,
    STOCK,
    Task,
    batch_maker,
    gates_set,
    make_loader,
)
from benchmarks.report import Row, ratio_check
from benchmarks.transforms.timing import one_thread
from detaug.bench.measuring import Ratio

#: (rotates, scales) of the batches of a block, each as often as nnU-Net's probabilities say.
BLOCK = 25
GATES = [
    gates
    for gates in ((False, False), (True, False), (False, True), (True, True))
    for _ in range(
        round(
            BLOCK
            * (P_ROTATION if gates[0] else 1 - P_ROTATION)
            * (P_SCALING if gates[1] else 1 - P_SCALING)
        )
    )
]
WARM_UP = 8  # batches; nnU-Net's blur tries its algorithms out in its first calls

Seconds = tuple[float, float]  # wall, CPU


def measure_speed(
    name: str, task: Task, data: Preprocessed, bound: float, blocks: int, quick: bool
) -> Row:
    """Milliseconds per batch: means over blocks of 25 batches, the medians of these, and ratios within a block."""
    one_thread()
    loaders = {DETAUG: make_loader(DETAUG, task, data), STOCK: make_loader(STOCK, task, data)}
    makers = {system: _maker(system, loader) for system, loader in loaders.items()}
    for number in range(2 if quick else WARM_UP):
        for make in makers.values():
            make(number, GATES[-1 - number])
    means: dict[str, list[Seconds]] = {system: [] for system in makers}
    every: dict[str, list[tuple[tuple[bool, bool], Seconds]]] = {system: [] for system in makers}
    for block in range(1 if quick else blocks):
        order = np.random.default_rng([SEED, block]).permutation(len(GATES))[: 2 if quick else None]
        taken: dict[str, list[Seconds]] = {system: [] for system in makers}
        for position, which in enumerate(order):
            number = 1000 * (block + 1) + position
            for system in (DETAUG, STOCK) if position % 2 == 0 else (STOCK, DETAUG):
                taken[system].append(makers[system](number, GATES[which]))
                every[system].append((GATES[which], taken[system][-1]))
        for system, values in taken.items():
            means[system].append(
                (
                    sum(wall for wall, _ in values) / len(values),
                    sum(c for _, c in values) / len(values),
                )
            )
    wall, cpu = (
        {system: [each[which] for each in means[system]] for system in means} for which in (0, 1)
    )
    return Row(
        name=f"{name}, read and augment",
        unit="ms per batch",
        ours=1e3 * median(wall[DETAUG]),
        checks=[
            ratio_check(
                f"{STOCK}, wall time",
                1e3 * median(wall[STOCK]),
                Ratio.of(wall[STOCK], wall[DETAUG]),
                ">=",
                bound,
            ),
            ratio_check(
                f"{STOCK}, CPU time",
                1e3 * median(cpu[STOCK]),
                Ratio.of(cpu[STOCK], cpu[DETAUG]),
                ">=",
                bound,
            ),
        ],
        repeats=len(wall[DETAUG]),
        settings={**task.settings(), "batches_per_round": len(order)},
        details={"wall_seconds": wall, "cpu_seconds": cpu, "by_gates": _by_gates(every)},
    )


def _maker(system: str, loader: Any) -> Callable[[int, tuple[bool, bool]], Seconds]:
    make = batch_maker(system, loader)

    def timed(number: int, gates: tuple[bool, bool]) -> Seconds:
        with gates_set(loader, *gates):
            wall, cpu = time.perf_counter(), time.process_time()
            batch = make(number)
            taken = time.perf_counter() - wall, time.process_time() - cpu
        del batch
        return taken

    return timed


def _by_gates(
    every: dict[str, list[tuple[tuple[bool, bool], Seconds]]],
) -> dict[str, dict[str, float]]:
    """Mean CPU milliseconds of batches with each outcome of the two gates."""
    names = {
        (False, False): "neither",
        (True, False): "rotated",
        (False, True): "scaled",
        (True, True): "both",
    }
    found: dict[str, dict[str, list[float]]] = {}
    for system, values in every.items():
        for gates, (_, cpu) in values:
            found.setdefault(system, {}).setdefault(names[gates], []).append(cpu)
    return {
        system: {gates: 1e3 * sum(values) / len(values) for gates, values in of.items()}
        for system, of in found.items()
    }
