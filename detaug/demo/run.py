"""The demo: one pipeline on real MRI through the stock augmenter and through detaug's, under varied circumstances."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from detaug.demo.loader import MRIPatchLoader, enlarged, training_transforms
from detaug.demo.mri import load_template
from detaug.engine.augmenter import DeterministicAugmenter
from detaug.fingerprints import fingerprint
from detaug.reports.progress import Progress
from detaug.reports.rows import DIFFERENT, EQUAL, REFERENCE, Planned, Result, Row, run_rows, table
from detaug.seeding.tree import Seed, SeedTree

BATCH_SIZE = 2

#: Batches that may wait for the consumer; the same for every augmenter.
NUM_CACHED = 4

STOCK = "NonDetMultiThreadedAugmenter"
OURS = "DeterministicAugmenter"

#: Enough hexadecimal digits to tell any two runs apart by eye.
DIGITS = 8


@dataclass(frozen=True)
class Settings:
    """What every run of the demo shares: the number of batches, the edge of a cubic patch in voxels, and the seed."""

    batches: int = 24
    patch: int = 24
    seed: Seed = 1234


@dataclass(frozen=True)
class Plan:
    """One run that is to be made.

    Attributes:
        augmenter: `STOCK` or `OURS`.
        kill: a worker is killed by SIGKILL after a third of the batches.
        resume: half of the batches are taken from a new augmenter, with one process more, that has loaded the state.
    """

    augmenter: str
    processes: int
    what: str
    kill: bool = False
    resume: bool = False


PLANS = (
    Plan(STOCK, 2, STOCK),
    Plan(STOCK, 2, STOCK),
    Plan(OURS, 0, OURS),
    Plan(OURS, 2, OURS),
    Plan(OURS, 2, f"{OURS}, a worker killed", kill=True),
    Plan(OURS, 2, f"{OURS}, stopped, resumed with 3 processes", resume=True),
)


@dataclass(frozen=True)
class Run(Row):
    """What one run gave, compared with the first one of its augmenter: a fingerprint of its batches' fingerprints in their order,
    and the processes that made them."""

    plan: Plan = field(kw_only=True)
    fingerprint: str = ""
    pids: tuple[int, ...] = ()

    @property
    def ok(self) -> bool:
        return self.plan.augmenter == STOCK or super().ok

    def as_json(self) -> dict[str, Any]:
        return {**super().as_json(), "pids": len(self.pids)}


@dataclass(frozen=True)
class Runs(Result[Run]):
    """What the demo found."""

    rows: tuple[Run, ...]
    settings: Settings

    def as_json(self) -> dict[str, Any]:
        return {**vars(self.settings), "deterministic": self.ok, "runs": [run.as_json() for run in self.rows]}

    def shown(self) -> list[RenderableType]:
        runs = table(
            "the same pipeline and seed",
            self.rows,
            ("processes", lambda run: str(run.plan.processes), True),
            ("fingerprint", lambda run: run.fingerprint[:DIGITS], False),
        )
        notices = [Text(f"{run.what}: {notice}", "dim") for run in self.rows for notice in run.notices]
        stock_differs = any(run.verdict == DIFFERENT for run in self.rows if run.plan.augmenter == STOCK)
        agree = "differ" if stock_differs else "agree this time"
        ours = [run for run in self.rows if run.plan.augmenter == OURS]
        some = f"{sum(not run.ok for run in ours)} of {len(ours)} runs differ from the first: this is a bug in detaug"
        every = f"all {len(ours)} runs agree, byte for byte and in the same order"
        return [
            runs,
            Text(),
            *notices,
            Text.assemble(f"{STOCK}: two runs with the same seeds ", (agree, "bold"), "."),
            Text.assemble(f"{OURS}: ", (every, "bold green") if self.ok else (some, "bold red"), "."),
        ]


def run_all(settings: Settings, shown: Progress) -> Runs:
    """Make all runs, one after another."""
    load_template()  # once for all, or NotInstalled
    first: dict[str, str] = {}
    planned = [
        Planned(
            f"{each.what}, {each.processes} processes", partial(_run, each, settings, shown, first), settings.batches
        )
        for each in PLANS
    ]
    return Runs(tuple(run_rows(planned, shown)), settings)


def _run(plan: Plan, settings: Settings, shown: Progress, first: dict[str, str]) -> Run:
    pids: list[int] = []
    prints: list[str] = []

    def take(augmenter: Any, until: int) -> None:
        while len(prints) < until:
            if plan.kill and len(prints) == settings.batches // 3 + 1:
                os.kill(pids[-1], signal.SIGKILL)
            batch = next(augmenter)
            # Who made a batch is the one thing about it that is allowed to change.
            pids.append(int(batch.pop("pid")))
            prints.append(fingerprint(batch))
            shown.advance()

    with augmenter_of(plan.augmenter, plan.processes, settings) as augmenter:
        take(augmenter, settings.batches // 2 if plan.resume else settings.batches)
        state = augmenter.state_dict() if plan.resume else None
    if state is not None:
        with augmenter_of(plan.augmenter, plan.processes + 1, settings) as augmenter:
            augmenter.load_state_dict(state)
            take(augmenter, settings.batches)
    found = fingerprint(prints)
    verdict = REFERENCE if plan.augmenter not in first else EQUAL if found == first[plan.augmenter] else DIFFERENT
    first.setdefault(plan.augmenter, found)
    return Run(plan.what, verdict, plan=plan, fingerprint=found, pids=tuple(sorted(set(pids))))


@contextmanager
def augmenter_of(name: str, processes: int, settings: Settings) -> Iterator[Any]:
    """`STOCK` or `OURS` over the demo's MRI, with batchgenerators' transforms."""
    patch_size = (settings.patch,) * 3
    loader = MRIPatchLoader([load_template()], BATCH_SIZE, enlarged(patch_size))
    transform = training_transforms(patch_size)
    if name == OURS:
        # The demo compares every batch itself; the check makes most of a worker's first ones twice.
        with DeterministicAugmenter(loader, transform, processes, NUM_CACHED, seed=settings.seed, check=False) as ours:
            yield ours
        return
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import NonDetMultiThreadedAugmenter

    # The best that it offers: NumPy and torch are seeded, with 32 bits. Python's `random`, from which batchgenerators' noise
    # draws, is not, and the order is left to whichever worker is first.
    seeds = [SeedTree(settings.seed).child(f"stock/{worker}").integer(bits=32) for worker in range(processes)]
    stock = NonDetMultiThreadedAugmenter(loader, transform, processes, num_cached=NUM_CACHED, seeds=seeds)
    try:
        yield stock
    finally:
        stock._finish()
