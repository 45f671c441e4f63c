"""Part: do two trainings with one seed give the same network, also killed and continued?

It is what `detaug nnunet verify` runs, on several trainers; in forks of this process, which has
imported nnU-Net, instead of fresh interpreters.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from unittest import mock

from benchmarks.gpu.bench import Bench, Child, Finding
from benchmarks.gpu.trainers import (
    DATASET,
    DETAUG,
    DETERMINISTIC,
    SMALL_2D,
    SMALL_3D,
    STOCK,
    TINY_2D,
    TINY_3D,
    dataset_of,
    set_up,
    trainer_class,
)
from detaug.nnunet.verification.recording import TRACE, Part, train
from detaug.nnunet.verification.settings import Settings
from detaug.nnunet.verification.verifying import Training, first_difference, trainings

ITERATIONS = 20
QUICK_ITERATIONS = 3

#: Seconds for a compiled training twice and continued: torch.compile has about a minute.
COMPILING = 120.0

#: No training starts with less time.
LEAST_SECONDS = 10.0


def run(bench: Bench) -> Iterator[Finding]:
    """Compare trainings of 2-D and 3-D networks, with AMP on a GPU and with deep supervision."""
    plans = [SMALL_3D, SMALL_2D] if bench.device == "cuda" else [TINY_3D, TINY_2D]
    trainers = [DETAUG, DETERMINISTIC, STOCK]
    iterations = ITERATIONS
    if bench.quick:
        plans = plans[:1]
        trainers = trainers[:1]
        iterations = QUICK_ITERATIONS
    settings = Settings(DATASET, "", device=bench.device, iterations=iterations)
    for plan in plans:
        root = dataset_of(bench, plan)
        for trainer in trainers:
            own = replace(settings, configuration=plan.configuration, trainer=trainer)
            yield compared(bench, root, own)
    if bench.device == "cuda":
        compiling = replace(bench, deadline=min(bench.deadline, time.monotonic() + COMPILING))
        own = replace(settings, configuration=plans[0].configuration, trainer=DETAUG)
        yield compared(compiling, dataset_of(bench, plans[0]), own, is_compiled=True)


def compared(bench: Bench, root: Path, settings: Settings, is_compiled: bool = False) -> Finding:
    """Train twice, and once killed and continued, and compare."""
    name = f"{settings.trainer}, {settings.configuration}"
    if is_compiled:
        name += ", compiled"
    if bench.seconds_left < LEAST_SECONDS:
        return Finding(name, "no time left")
    # nnU-Net's own trainer promises nothing.
    is_promised = settings.trainer != STOCK
    own = replace(bench, folder=bench.folder / name.replace(", ", "-"))
    own.folder.mkdir()
    planned = trainings(settings)
    if not is_promised:
        planned = planned[:2]
    for number in (0, 1):
        for failure in _train_side_by_side(own, root, planned, number, is_compiled):
            if is_compiled:
                return Finding(name, f"not compiled: {failure.text}", failure.values)
            return replace(failure, name=name)
    reference, *others = planned
    differences = {
        other.what: first_difference(own.folder / reference.folder, own.folder / other.folder)
        for other in others
    }
    text = "; ".join(
        f"{what}: {difference or 'equal, byte for byte'}"
        for what, difference in differences.items()
    )
    is_equal = not any(differences.values())
    return Finding(name, text, {"first_difference": differences}, is_equal or not is_promised)


def _train_side_by_side(
    bench: Bench, root: Path, planned: Sequence[Training], number: int, is_compiled: bool
) -> list[Finding]:
    """Run the parts of that number of all trainings that have one, and return what failed."""
    children = []
    for training in planned:
        for part in training.parts[number : number + 1]:
            folder = bench.folder / training.folder
            folder.mkdir(exist_ok=True)
            exit_code = -signal.SIGKILL if part.killed else 0
            child = Child(
                bench, folder.name, _train, root, part, folder, is_compiled, exit_code=exit_code
            )
            children.append(child)
    # All are ended, whatever the first of them yields.
    return [failure for child in children for failure in child.findings()]


def _train(root: Path, part: Part, folder: Path, is_compiled: bool) -> Iterator[Finding]:
    """Run a part of a training; a trace of its steps and its checkpoints are in `folder`."""
    set_up(
        root,
        nnUNet_results=str(folder / "results"),
        nnUNet_n_proc_DA=str(part.processes),
        nnUNet_compile=str(is_compiled),
    )
    search = "nnunetv2.utilities.find_objects.recursive_find_trainer_class_by_name"
    with mock.patch(search, trainer_class):
        train(part, folder / TRACE)
    yield from ()
