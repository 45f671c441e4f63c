"""The demo: one pipeline on real MRI through the stock augmenter and through detaug's, under varied circumstances."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol

from detaug.demo.loader import MRIPatchLoader, enlarged, native_transforms, training_transforms
from detaug.demo.mri import load_cases
from detaug.reports.notices import collected_notices
from detaug.seeding.tree import Seed, SeedTree

BATCH_SIZE = 2

#: Batches that may wait for the consumer; the same for every augmenter.
NUM_CACHED = 4

#: Longest random pause in the run with delays, in seconds: a few times what a batch costs.
DELAY = 0.3

STOCK = "NonDetMultiThreadedAugmenter"
OURS = "DeterministicAugmenter"
#: `OURS` with detaug's own transforms in place of batchgenerators'.
NATIVE = "with detaug's transforms"

#: Called once per batch with the number of batches that were received since the last call.
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Settings:
    """What every run of the demo shares.

    Attributes:
        batches: how many batches each run takes.
        patch: edge length in voxels of the cubic patches.
        processes: the process counts that DeterministicAugmenter is run with.
        seed: the one seed of all runs.
    """

    batches: int = 24
    patch: int = 48
    processes: tuple[int, ...] = (0, 1, 2, 3)
    seed: Seed = 1234

    @property
    def warm_up(self) -> int:
        """Batches before the clock starts: they pay for the start of the processes, and fill the queues."""
        return max(1, self.batches // 8)

    @property
    def compared_processes(self) -> int:
        """The process count at which the two augmenters are compared: two, or the nearest in the settings."""
        return 2 if 2 in self.processes else max(1, *self.processes)


@dataclass(frozen=True)
class Plan:
    """One run that is to be made.

    Attributes:
        augmenter: `STOCK`, `OURS` or `NATIVE`.
        processes: how many worker processes; 0 is the calling process.
        circumstance: what is special about it, for the reader; empty when nothing is.
        delay: see `MRIPatchLoader`, seconds.
        kill: a worker is killed by SIGKILL after a third of the batches.
    """

    augmenter: str
    processes: int
    circumstance: str = ""
    delay: float = 0.0
    kill: bool = False


@dataclass
class Run:
    """What one run gave.

    Attributes:
        fingerprint: of the sequence of its batches' fingerprints, so of every byte and of the order.
        batches_per_second: after the warm-up.
        same_as_first: whether the fingerprint is that of the augmenter's first run; None for that run itself.
        pids: processes that made the batches.
        notices: what was logged or warned about meanwhile.
        timed_batches: what `batches_per_second` is a mean of.
    """

    plan: Plan
    fingerprint: str
    batches_per_second: float
    same_as_first: bool | None
    pids: tuple[int, ...]
    notices: list[str] = field(default_factory=list)
    timed_batches: int = 0


class _Augmenter(Protocol):
    def __next__(self) -> dict[str, Any]: ...

    def close(self) -> None: ...


def plans(settings: Settings) -> list[Plan]:
    """The runs of the demo, in order."""
    compared = settings.compared_processes
    return [
        Plan(STOCK, compared),
        Plan(STOCK, compared),
        *(Plan(OURS, count) for count in settings.processes),
        Plan(OURS, compared, "random delays", delay=DELAY),
        Plan(OURS, compared, "a worker killed", kill=True),
        *(Plan(NATIVE, count) for count in sorted({0, compared})),
    ]


def run_all(settings: Settings, started: Callable[[Plan], None], advance: Advance) -> list[Run]:
    """Make all runs, one after another.

    Args:
        settings: what they share.
        started: told of each run before it begins.
        advance: told of each batch.

    Raises:
        ModuleNotFoundError: nilearn, which holds the MRI, is not installed.
    """
    first: dict[str, str] = {}
    runs = []
    for plan in plans(settings):
        started(plan)
        with collected_notices() as notices:
            fingerprint, rate, pids = _measure(plan, settings, advance)
        same = fingerprint == first[plan.augmenter] if plan.augmenter in first else None
        first.setdefault(plan.augmenter, fingerprint)
        runs.append(Run(plan, fingerprint, rate, same, pids, notices, settings.batches - settings.warm_up))
    return runs


def all_same(runs: list[Run]) -> bool:
    """Whether all runs of DeterministicAugmenter, with either kind of transforms, gave the same bytes in the same order."""
    return all(run.same_as_first is not False for run in runs if run.plan.augmenter != STOCK)


def speed_up(runs: list[Run]) -> float | None:
    """Batches per second of DeterministicAugmenter in the calling process: with detaug's transforms over with batchgenerators'.

    None where one of them was not run there, or where only a few batches were timed.
    """
    rates = {
        run.plan.augmenter: run.batches_per_second
        for run in runs
        if run.plan.processes == 0 and run.timed_batches >= 4 * NUM_CACHED
    }
    return rates[NATIVE] / rates[OURS] if {NATIVE, OURS} <= set(rates) else None


def _measure(plan: Plan, settings: Settings, advance: Advance) -> tuple[str, float, tuple[int, ...]]:
    """The run's fingerprint, its batches per second, and who made the batches."""
    from detaug import fingerprint

    prints, pids = [], []
    began = time.perf_counter()
    with closing(_augmenter(plan, settings)) as augmenter:
        for number in range(settings.batches):
            batch = next(augmenter)
            # Who made a batch is the one thing about it that is allowed to change.
            pids.append(int(batch.pop("pid")))
            prints.append(fingerprint(batch))
            del batch
            advance(1)
            if number + 1 == settings.warm_up:
                began = time.perf_counter()
            if plan.kill and number == settings.batches // 3:
                _kill(pids[-1])
        seconds = time.perf_counter() - began
    rate = (settings.batches - settings.warm_up) / seconds
    return fingerprint(prints), rate, tuple(sorted(set(pids)))


def _augmenter(plan: Plan, settings: Settings) -> _Augmenter:
    patch_size = (settings.patch,) * 3
    loader = MRIPatchLoader(load_cases(), BATCH_SIZE, enlarged(patch_size), delay=plan.delay)
    transform = native_transforms(patch_size) if plan.augmenter == NATIVE else training_transforms(patch_size)
    if plan.augmenter != STOCK:
        from detaug import DeterministicAugmenter

        # The demo compares every batch itself; the check makes most of a worker's first ones twice.
        augmenter: _Augmenter = DeterministicAugmenter(
            loader, transform, plan.processes, num_cached=NUM_CACHED, seed=settings.seed, check_every=0
        )
        return augmenter
    return _StockAugmenter(loader, transform, plan.processes, settings.seed)


class _StockAugmenter:
    """batchgenerators' augmenter with a `close`, and with its workers seeded, which is the best that it offers.

    That seeds NumPy and torch, but not Python's `random`, from which batchgenerators' noise draws, and leaves the order
    to whichever worker is first.
    """

    def __init__(self, loader: MRIPatchLoader, transform: Any, processes: int, seed: Seed) -> None:
        from batchgenerators.dataloading.nondet_multi_threaded_augmenter import NonDetMultiThreadedAugmenter

        # NumPy takes 32 bits of each.
        seeds = [SeedTree(seed).child(f"stock/{worker}").integer(bits=32) for worker in range(processes)]
        self._stock = NonDetMultiThreadedAugmenter(loader, transform, processes, num_cached=NUM_CACHED, seeds=seeds)

    def __next__(self) -> dict[str, Any]:
        batch: dict[str, Any] = next(self._stock)
        return batch

    def close(self) -> None:
        self._stock._finish()


def _kill(pid: int) -> None:
    if pid == os.getpid():
        raise RuntimeError("the run with a killed worker made its batches in the calling process; it has no worker")
    os.kill(pid, signal.SIGKILL)
