"""Rows: reading and augmenting a batch in one process, on one thread.

What nnU-Net's gates draw makes one batch cost ten times another, and whether it rotates and scales
is most of that. So the gates of these two are set, to each of the four outcomes as often as their
probabilities say, and the rest is drawn. Both systems have the same gates in the same order.
"""

from __future__ import annotations

from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.calls import Stopwatch, Work, alternate
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import (
    NNUNET,
    P_ROTATION,
    P_SCALING,
    Task,
    batch_maker,
    gates_set,
    make_loader,
)
from benchmarks.report import OURS, Row, row_of
from benchmarks.settings import SEED, Settings
from detaug.system.threads import keep_one_thread

#: Batches of a round.
ROUND = 25
#: Batches that are not timed: nnU-Net's blur tries its algorithms in its first calls.
WARM_UP = 8

#: Whether a batch rotates, and whether it scales.
Gates = tuple[bool, bool]


def gates_of_a_round() -> list[Gates]:
    """Return each outcome as often as nnU-Net's probabilities say."""
    gates: list[Gates] = []
    for rotates in (False, True):
        for scales in (False, True):
            p_rotates = P_ROTATION if rotates else 1 - P_ROTATION
            p_scales = P_SCALING if scales else 1 - P_SCALING
            gates += [(rotates, scales)] * round(ROUND * p_rotates * p_scales)
    return gates


def measure_speed(task: Task, data: Preprocessed, settings: Settings) -> Row:
    """Measure CPU milliseconds per batch: means over rounds of 25 batches, and their medians."""
    keep_one_thread()
    gates = gates_of_a_round()
    systems = {
        system: _work(system, make_loader(system, task, data), gates) for system in (OURS, NNUNET)
    }
    rare_first = list(reversed(range(len(gates))))
    alternate(systems, rare_first[: 2 if settings.quick else WARM_UP])
    cpu: dict[str, list[float]] = {system: [] for system in systems}
    for number in range(settings.rounds(task.rounds)):
        order = np.random.default_rng([SEED, number]).permutation(len(gates))
        order = order[: settings.batches(len(gates))]
        timed = alternate(systems, [ROUND * (number + 1) + int(index) for index in order])
        for system, seconds in timed.items():
            cpu[system].append(fmean(batch.cpu for batch in seconds))
    return row_of(
        f"{task.name}, read and augment",
        "ms",
        cpu,
        {**task.settings(), "batches_per_round": len(order)},
    )


def _work(system: str, loader: Any, gates: list[Gates]) -> Work:
    make = batch_maker(system, loader)

    def work(number: int, stopwatch: Stopwatch) -> None:
        with gates_set(loader, *gates[number % ROUND]), stopwatch:
            batch = make(number)
        del batch

    return work
