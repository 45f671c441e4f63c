"""Rows: how long it takes from making the augmenter to holding its first batch."""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.engine.loaders import ReadyLoader, ready_batch
from benchmarks.engine.nnunet import nnunet_task
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SYSTEMS, batch_number_for
from benchmarks.report import Row, ratio_check
from detaug.bench.measuring import Ratio, in_fresh_process, interleaved

ROUNDS = 15
BOUNDS = {"NonDetMultiThreadedAugmenter": 1.2}


def measure_first_batch(settings: Settings) -> Row:
    """With the loader that clones a ready batch: starting is all there is to wait for."""
    names = ("detaug", "NonDetMultiThreadedAugmenter", "MultiThreadedAugmenter", "torch")
    return _measure(
        "first batch, ready loader", names, settings, lambda _: ReadyLoader(ready_batch())
    )


def measure_first_nnunet_batch(settings: Settings) -> Row:
    """With nnU-Net's validation loader, whose batches cost nearly the same.

    Not with its training loader: the unordered peer hands out the cheaper of the first two batches, which says nothing
    about starting.
    """
    with nnunet_task() as task:
        return _measure(
            "first batch, nnU-Net's validation loader",
            ("detaug", "NonDetMultiThreadedAugmenter"),
            settings,
            lambda system: task.validation_loader(batch_number_for(system)),
        )


def _measure(
    name: str, names: tuple[str, ...], settings: Settings, make_loader: Callable[[str], Any]
) -> Row:
    rounds = settings.rounds(ROUNDS)
    seconds = interleaved(
        names, rounds, lambda system: in_fresh_process(_seconds, system, settings, make_loader)
    )
    middle = {name: median(values) for name, values in seconds.items()}
    return Row(
        name=name,
        unit="ms",
        ours=middle["detaug"] * 1e3,
        checks=[
            ratio_check(
                peer,
                middle[peer] * 1e3,
                Ratio.of(seconds["detaug"], seconds[peer]),
                "<=",
                BOUNDS.get(peer),
            )
            for peer in names[1:]
        ],
        repeats=rounds,
        settings={"processes": settings.processes, "num_cached": settings.num_cached},
        details={"seconds": seconds},
    )


def _seconds(system: str, settings: Settings, make_loader: Callable[[str], Any]) -> float:
    if system == "detaug":
        from detaug import DeterministicAugmenter  # noqa: F401  # importing is not starting
    loader = make_loader(system)
    begin = time.perf_counter()
    with SYSTEMS[system](loader, settings) as iterator:
        next(iterator)
        return time.perf_counter() - begin
