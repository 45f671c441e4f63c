"""Row: what ``guard=True`` adds to the time of a batch."""

from __future__ import annotations

import math
import time
from statistics import median
from typing import Any

import numpy as np

from benchmarks.engine.settings import Settings
from benchmarks.measure import in_fresh_process
from benchmarks.report import Check, Row

PAIRS, TURNS, EMPTY_PAIRS, ROUNDS = 24, 6, 2000, 5
ALLOWED = 1.02

PATCH, LARGER = (64, 64, 64), (103, 103, 103)
BATCH_SIZE = 2


def measure_guard_cost(settings: Settings) -> Row:
    """CPU time of the same batches with and without, by turns in one process: detaug's own 3-D nnU-Net transforms on a
    batch of 2 × 1 × 103³ → 64³, an eighth of nnU-Net's usual one. In the details, microseconds on an empty batch."""
    rounds, pairs = settings.rounds(ROUNDS), settings.batches(PAIRS)
    measured = [in_fresh_process(_both, pairs) for _ in range(rounds)]
    ratios = [sum(guarded) / sum(plain) for plain, guarded in measured]
    plain = median(seconds for seconds_of, _ in measured for seconds in seconds_of)
    guarded = median(seconds for _, seconds_of in measured for seconds in seconds_of)
    empty = [in_fresh_process(_added_microseconds, settings.batches(EMPTY_PAIRS)) for _ in range(rounds)]
    return Row(
        name="guard=True",
        unit="CPU ms per batch",
        ours=guarded * 1e3,
        checks=[
            Check("guard=False", plain * 1e3, median(ratios), (min(ratios), max(ratios)), "<=", ALLOWED),
            Check("nothing: µs added to an empty batch", None, median(empty), (min(empty), max(empty)), "<="),
        ],
        repeats=rounds,
        settings={"pairs": pairs, "patch": PATCH, "larger_patch": LARGER, "batch_size": BATCH_SIZE},
    )


class _Empty:
    def __next__(self) -> dict[str, Any]:
        return {}


class _Volumes:
    """The same image and labels over and over."""

    def __init__(self) -> None:
        rng = np.random.default_rng(1)
        self.image = rng.normal(size=(1, *LARGER)).astype(np.float32)
        self.labels = rng.integers(0, 3, (1, *LARGER)).astype(np.int16)

    def __next__(self) -> list[tuple[Any, Any]]:
        return [(self.image, self.labels)] * BATCH_SIZE


class _EverySample:
    def __init__(self) -> None:
        from detaug.nnunet import training_transforms

        scales = [[1, 1, 1], [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]]
        self.transform = training_transforms(PATCH, (-0.52, 0.52), scales, (0, 1, 2), False)

    def __call__(self, samples: list[tuple[Any, Any]]) -> list[Any]:
        import torch

        return [
            self.transform(image=torch.from_numpy(image), segmentation=torch.from_numpy(labels))
            for image, labels in samples
        ]


def _producers(loader: Any, transform: Any) -> tuple[Any, Any]:
    """One without the guard and one with it."""
    from detaug.pipeline.producer import Pipeline, Producer
    from detaug.seeding.branch import SeedBranch
    from detaug.seeding.tree import SeedTree
    from detaug.sources import resolve_source

    pipeline = Pipeline(resolve_source(loader, True), transform, must_travel=False)
    branch = SeedBranch.of(SeedTree(1), 1)
    plain, guarded = (Producer(pipeline.pristine, branch, guard=guard) for guard in (False, True))
    return plain, guarded


def _both(pairs: int) -> tuple[list[float], list[float]]:
    """CPU seconds of each batch without and with the guard: the least of several times, by turns."""
    import torch

    torch.set_num_threads(1)
    producers = _producers(_Volumes(), _EverySample())
    seconds: tuple[list[float], list[float]] = ([], [])
    for step in range(pairs):
        least = [math.inf, math.inf]
        for turn in range(TURNS):
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                begin = time.process_time()
                producers[which].make(0, step)
                least[which] = min(least[which], time.process_time() - begin)
        for which in (0, 1):
            seconds[which].append(least[which])
    return seconds


def _added_microseconds(pairs: int) -> float:
    plain, guarded = _producers(_Empty(), None)
    added = []
    for step in range(pairs):
        times = []
        for producer in (plain, guarded):
            begin = time.perf_counter()
            producer.make(0, step)
            times.append(time.perf_counter() - begin)
        added.append(times[1] - times[0])
    return median(added) * 1e6
