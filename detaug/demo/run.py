"""The demo: one pipeline on real MRI through the stock augmenter and through detaug's, under varied circumstances."""

from __future__ import annotations

import os
import signal
import time
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from detaug.demo.loader import MRIPatchLoader, enlarged, native_transforms, training_transforms
from detaug.demo.mri import load_cases
from detaug.engine.augmenter import DeterministicAugmenter
from detaug.fingerprints import fingerprint
from detaug.reports.progress import Progress
from detaug.reports.rows import DIFFERENT, EQUAL, REFERENCE, Planned, Result, run_rows, table
from detaug.seeding.tree import Seed, SeedTree
from detaug.verification.result import Prints, Row, compared
from detaug.verification.rows.real_runs import take

BATCH_SIZE = 2

#: Batches that may wait for the consumer; the same for every augmenter.
NUM_CACHED = 4

#: Longest random pause in the run with delays, in seconds: a few times what a batch costs.
DELAY = 0.3

STOCK = "NonDetMultiThreadedAugmenter"
OURS = "DeterministicAugmenter"
#: `OURS` with detaug's own transforms in place of batchgenerators'.
NATIVE = "with detaug's transforms"

#: Enough hexadecimal digits to tell any two runs apart by eye.
DIGITS = 8


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

    @property
    def what(self) -> str:
        """For the reader."""
        name = f"{OURS} {NATIVE}" if self.augmenter == NATIVE else self.augmenter
        return name + (f" with {self.circumstance}" if self.circumstance else "")


@dataclass(frozen=True)
class Run(Row):
    """What one run gave, compared with the first one of its augmenter.

    Attributes:
        plan: the run.
        fingerprint: of the sequence of its batches' fingerprints, so of every byte and of the order.
        batches_per_second: after the warm-up.
        timed_batches: what `batches_per_second` is a mean of.
        pids: processes that made the batches.
    """

    plan: Plan = field(kw_only=True)
    fingerprint: str = ""
    batches_per_second: float = 0.0
    timed_batches: int = 0
    pids: tuple[int, ...] = ()

    @property
    def ok(self) -> bool:
        return self.plan.augmenter == STOCK or super().ok

    def told(self) -> Text:
        # Where the stock augmenter's runs differ says nothing, and takes the room of 80 columns.
        return super(Row, self).told() if self.plan.augmenter == STOCK else super().told()

    def as_json(self) -> dict[str, Any]:
        stored = super().as_json()
        plan, pids = stored.pop("plan"), stored.pop("pids")
        return {
            **stored,
            "augmenter": plan["augmenter"],
            "processes": plan["processes"],
            "circumstance": plan["circumstance"],
            "same_as_first": None if self.verdict == REFERENCE else self.verdict == EQUAL,
            "batches_per_second": round(self.batches_per_second, 3),
            "processes_seen": len(pids),
        }


@dataclass(frozen=True)
class Runs(Result[Run]):
    """What the demo found.

    Attributes:
        rows: the runs.
        settings: what they share.
    """

    rows: tuple[Run, ...]
    settings: Settings

    @property
    def speed_up(self) -> float | None:
        """Batches per second of DeterministicAugmenter in the calling process: with detaug's transforms over batchgenerators'.

        None where one of them was not run there, or where only a few batches were timed.
        """
        rates = {
            run.plan.augmenter: run.batches_per_second
            for run in self.rows
            if run.plan.processes == 0 and run.timed_batches >= 4 * NUM_CACHED
        }
        return rates[NATIVE] / rates[OURS] if {NATIVE, OURS} <= set(rates) else None

    def as_json(self) -> dict[str, Any]:
        settings = self.settings
        return {
            "batches": settings.batches,
            "warm_up_batches": settings.warm_up,
            "batch_size": BATCH_SIZE,
            "patch_size": [settings.patch] * 3,
            "num_cached": NUM_CACHED,
            "seed": settings.seed,
            "deterministic": self.ok,
            "speed_up_with_own_transforms": self.speed_up,
            "runs": [run.as_json() for run in self.rows],
        }

    def shown(self) -> list[RenderableType]:
        runs = table(
            "the same pipeline and seed",
            self.rows,
            ("pro-\ncesses", lambda run: str(run.plan.processes), True),
            ("fingerprint", lambda run: run.fingerprint[:DIGITS], False),
            ("batches\nper s", lambda run: f"{run.batches_per_second:.1f}", True),
        )
        notices = [Text(f"{run.what}: {notice}", "dim") for run in self.rows for notice in run.notices]
        seconds = sum(run.seconds for run in self.rows)
        took = Text(f"{len(self.rows)} runs of {self.settings.batches} batches in {seconds:.0f} s", "dim")
        return [runs, Text(), *notices, *self._verdicts(), took]

    def _verdicts(self) -> list[Text]:
        """A sentence for each augmenter, and one for the transforms."""
        stock_differs = any(run.verdict == DIFFERENT for run in self.rows if run.plan.augmenter == STOCK)
        agree = "differ" if stock_differs else "agree this time"
        lines = [Text.assemble(f"{STOCK}: two runs with the same seeds ", (agree, "bold"), ".")]
        ours = [run for run in self.rows if run.plan.augmenter != STOCK]
        if not self.ok:
            some = f"{sum(not run.ok for run in ours)} of {len(ours)} runs differ"
            return [*lines, Text.assemble(f"{OURS}: ", (some, "bold red"), " from the first. This is a bug in detaug.")]
        every = (f"all {len(ours)} runs agree", "bold green")
        lines.append(Text.assemble(f"{OURS}: ", every, ", byte for byte and in the same order."))
        if self.speed_up is not None:
            lines.append(
                Text.assemble(
                    "Detaug's transforms make ",
                    (f"{self.speed_up:.1f} times", "bold"),
                    " the batches per second of batchgenerators' (0 processes). They interpolate images linearly, "
                    "batchgenerators by cubic splines.",
                )
            )
        return lines


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


def run_all(settings: Settings, shown: Progress) -> Runs:
    """Make all runs, one after another.

    Args:
        settings: what they share.
        shown: shows every run and batch.

    Raises:
        ModuleNotFoundError: nilearn, which holds the MRI, is not installed.
    """
    first: dict[str, Prints] = {}

    def planned(plan: Plan) -> Planned[Run]:
        run = partial(_run, plan, settings, shown, first)
        return Planned(f"{plan.what}, {plan.processes} processes", run, settings.batches)

    return Runs(tuple(run_rows(map(planned, plans(settings)), shown)), settings)


def _run(plan: Plan, settings: Settings, shown: Progress, first: dict[str, Prints]) -> Run:
    pids: list[int] = []
    began = time.perf_counter()

    def before(_augmenter: Any) -> None:
        nonlocal began
        if len(pids) == settings.warm_up:
            began = time.perf_counter()
        if plan.kill and len(pids) == settings.batches // 3 + 1:
            _kill(pids[-1])

    def print_of(batch: dict[str, Any]) -> str:
        # Who made a batch is the one thing about it that is allowed to change.
        pids.append(int(batch.pop("pid")))
        shown.advance()
        return fingerprint(batch)

    with closing(_augmenter(plan, settings)) as augmenter:
        prints = take(augmenter, settings.batches, before, print_of)
        seconds = time.perf_counter() - began
    reference = first.setdefault(plan.augmenter, prints)
    _, different = compared(reference, enumerate(prints))
    row = Row.of(plan.what, len(prints), [(0, number) for number in different])
    timed = settings.batches - settings.warm_up
    return Run(
        **vars(replace(row, verdict=REFERENCE) if reference is prints else row),
        plan=plan,
        fingerprint=fingerprint(prints),
        batches_per_second=timed / seconds,
        timed_batches=timed,
        pids=tuple(sorted(set(pids))),
    )


def _augmenter(plan: Plan, settings: Settings) -> Any:
    patch_size = (settings.patch,) * 3
    loader = MRIPatchLoader(load_cases(), BATCH_SIZE, enlarged(patch_size), delay=plan.delay)
    transform = native_transforms(patch_size) if plan.augmenter == NATIVE else training_transforms(patch_size)
    if plan.augmenter == STOCK:
        return _StockAugmenter(loader, transform, plan.processes, settings.seed)
    # The demo compares every batch itself; the check makes most of a worker's first ones twice.
    return DeterministicAugmenter(
        loader, transform, plan.processes, num_cached=NUM_CACHED, seed=settings.seed, check_every=0
    )


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
