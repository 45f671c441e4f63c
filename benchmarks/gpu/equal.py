"""Part: do two trainings with one seed give the same network, also killed and continued?"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.gpu.children import ChildFailed
from benchmarks.gpu.dataset import SMALL_2D, SMALL_3D, TINY_2D, TINY_3D, dataset_of
from benchmarks.gpu.findings import Bench, Finding, require
from benchmarks.gpu.trainings import (
    DETAUG,
    DETERMINISTIC,
    STOCK,
    Run,
    Trained,
    Training,
    first_difference,
)

ITERATIONS = 20
QUICK_ITERATIONS = 3

#: Seconds for a compiled training twice and continued: torch.compile has about a minute.
COMPILING = 120.0

#: No training starts with less time.
LEAST_SECONDS = 10.0


def run(bench: Bench) -> Iterator[Finding]:
    """Compare trainings of 2-D and 3-D networks, with AMP on a GPU and with deep supervision."""
    require("nnunetv2")
    plans = [SMALL_3D, SMALL_2D] if bench.device == "cuda" else [TINY_3D, TINY_2D]
    trainers = [DETAUG, DETERMINISTIC, STOCK]
    iterations = ITERATIONS
    workers = 2
    if bench.quick:
        plans = plans[:1]
        trainers = trainers[:1]
        iterations = QUICK_ITERATIONS
        workers = 0
    trainings = []
    for plan in plans:
        root = dataset_of(bench, plan, plan.configuration)
        for trainer in trainers:
            training = Training(
                trainer, root, plan.configuration, bench.device, iterations, workers
            )
            trainings.append(training)
            yield compared(bench, training)
    if bench.device == "cuda":
        yield compared(bench, replace(trainings[0], is_compiled=True))


def name_of(training: Training) -> str:
    """Return how findings name the training."""
    compiled = ", compiled" if training.is_compiled else ""
    return f"{training.trainer}, {training.configuration}{compiled}"


def compared(bench: Bench, training: Training) -> Finding:
    """Train twice, and once killed and continued, and compare."""
    name = name_of(training)
    is_stock = training.trainer == STOCK
    if bench.seconds_left < LEAST_SECONDS:
        return Finding(name, "no time left")
    deadline = bench.deadline
    if training.is_compiled:
        deadline = min(deadline, time.monotonic() + COMPILING)
    folder = bench.folder / name.replace(", ", "-")
    try:
        first, second, continued = _trained(training, folder, deadline, is_killed=not is_stock)
    except ChildFailed as error:
        if training.is_compiled:
            return Finding(name, f"not compiled: {error}", {"error": str(error)})
        return Finding(name, f"failed: {error}", {"error": str(error)}, is_as_promised=False)
    differences = {"twice": first_difference(first, second)}
    if continued is not None:
        differences["killed and continued"] = first_difference(first, continued)
    is_equal = not any(differences.values())
    text = "; ".join(f"{how}: {_described(difference)}" for how, difference in differences.items())
    values: dict[str, Any] = {"steps": len(first.steps), "first_difference": differences}
    values["losses"] = [step["loss"] for step in first.steps]
    # nnU-Net's own trainer promises nothing.
    return Finding(name, text, values, is_as_promised=is_equal or is_stock)


def _trained(
    training: Training, folder: Path, deadline: float, is_killed: bool
) -> tuple[Trained, Trained, Trained | None]:
    """Return two trainings that ran side by side, and one that was killed and continued."""
    with ExitStack() as stack:
        runs = [Run(training, folder / name) for name in ("first", "second")]
        if is_killed:
            runs.append(Run(training, folder / "continued", is_killed=True))
        for run in runs:
            stack.callback(run.child.end)
        first, second, *_ = [run.wait(deadline) for run in runs]
    assert first is not None
    assert second is not None
    if not is_killed:
        return first, second, None
    return first, second, Run(training, folder / "continued", continues=True).wait(deadline)


def _described(difference: dict[str, Any] | None) -> str:
    if difference is None:
        return "equal, byte for byte"
    position = ""
    if "step" in difference:
        position = f" in epoch {difference['epoch']}, step {difference['step']}"
    text = f"{difference['what']} differs{position}"
    values = difference.get("values")
    if values:
        text += f" ({values})"
    return text
