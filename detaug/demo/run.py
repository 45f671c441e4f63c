"""The demo: one pipeline on real MRI through the stock augmenter and through detaug's, under varied circumstances."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from rich.console import RenderableType
from rich.text import Text

from detaug.demo.loader import MRIPatchLoader, enlarged, training_transforms
from detaug.demo.mri import load_template
from detaug.engine.augmenter import DeterministicAugmenter
from detaug.fingerprints import fingerprint
from detaug.reports.progress import Progress
from detaug.reports.rows import DIFFERENT, EQUAL, Planned, Result, Row, run_rows, table
from detaug.seeding.tree import Seed, SeedTree

BATCH_SIZE = 2
#: Batches that may wait for the consumer; the same for every augmenter.
NUM_CACHED = 4
STOCK = "NonDetMultiThreadedAugmenter"
OURS = "DeterministicAugmenter"
#: Enough hexadecimal digits to tell any two runs apart by eye.
DIGITS = 8


@dataclass(frozen=True)
class Run(Row):
    """One run, which is compared with the first one of its augmenter.

    Attributes:
        augmenter: `STOCK` or `OURS`.
        kill: a worker is killed by SIGKILL after a third of the batches.
        resume: half of the batches are taken from a new augmenter, with one process more, that has loaded the state.
        fingerprint: of its batches' fingerprints in their order.
        pids: how many processes made them.
    """

    augmenter: str = OURS
    processes: int = 2
    kill: bool = False
    resume: bool = False
    fingerprint: str = ""
    pids: int = 0

    @property
    def ok(self) -> bool:
        return self.augmenter == STOCK or super().ok


RUNS = (
    Run(STOCK, augmenter=STOCK),
    Run(STOCK, augmenter=STOCK),
    Run(OURS, processes=0),
    Run(OURS),
    Run(f"{OURS}, a worker killed", kill=True),
    Run(f"{OURS}, stopped, resumed with 3 processes", resume=True),
)


@dataclass(frozen=True)
class Runs(Result[Run]):
    """What the demo found."""

    rows: tuple[Run, ...]

    def shown(self) -> list[RenderableType]:
        runs = table(
            "the same pipeline and seed",
            self.rows,
            ("processes", lambda run: str(run.processes), True),
            ("fingerprint", lambda run: run.fingerprint[:DIGITS], False),
        )
        notices = [Text(f"{run.what}: {notice}", "dim") for run in self.rows for notice in run.notices]
        stock_differs = any(run.verdict == DIFFERENT for run in self.rows if run.augmenter == STOCK)
        agree = "differ" if stock_differs else "agree this time"
        ours = [run for run in self.rows if run.augmenter == OURS]
        some = f"{sum(not run.ok for run in ours)} of {len(ours)} runs differ from the first: this is a bug in detaug"
        every = f"all {len(ours)} runs agree, byte for byte and in the same order"
        return [
            runs,
            Text(),
            *notices,
            Text.assemble(f"{STOCK}: two runs with the same seeds ", (agree, "bold"), "."),
            Text.assemble(f"{OURS}: ", (every, "bold green") if self.ok else (some, "bold red"), "."),
        ]


def run_all(batches: int, patch: int, seed: Seed, shown: Progress) -> Runs:
    """Make all runs, one after another: so many batches each, of cubic patches of so many voxels along an edge."""
    load_template()  # once for all, or NotInstalled
    first: dict[str, str] = {}

    def made(planned: Run) -> Run:
        found, pids = _taken(planned, batches, partial(augmenter_of, planned.augmenter, patch=patch, seed=seed), shown)
        run = replace(planned, fingerprint=found, pids=pids)
        if run.augmenter not in first:
            first[run.augmenter] = found
            return run
        return replace(run, verdict=EQUAL if found == first[run.augmenter] else DIFFERENT)

    planned = [Planned(f"{each.what}, {each.processes} processes", partial(made, each), batches) for each in RUNS]
    return Runs(tuple(run_rows(planned, shown)))


def _taken(run: Run, batches: int, augmenter: Any, shown: Progress) -> tuple[str, int]:
    """The fingerprint of a run, and how many processes made its batches."""
    pids: list[int] = []
    prints: list[str] = []

    def take(augmenter: Any, until: int) -> None:
        while len(prints) < until:
            if run.kill and len(prints) == batches // 3 + 1:
                os.kill(pids[-1], signal.SIGKILL)
            batch = next(augmenter)
            # Who made a batch is the one thing about it that is allowed to change.
            pids.append(int(batch.pop("pid")))
            prints.append(fingerprint(batch))
            shown.advance()

    with augmenter(run.processes) as first:
        take(first, batches // 2 if run.resume else batches)
        state = first.state_dict() if run.resume else None
    if state is not None:
        with augmenter(run.processes + 1) as second:
            second.load_state_dict(state)
            take(second, batches)
    return fingerprint(prints), len(set(pids))


@contextmanager
def augmenter_of(name: str, processes: int, patch: int = 24, seed: Seed = 1234) -> Iterator[Any]:
    """`STOCK` or `OURS` over the demo's MRI, with batchgenerators' transforms."""
    patch_size = (patch,) * 3
    loader = MRIPatchLoader([load_template()], BATCH_SIZE, enlarged(patch_size))
    transform = training_transforms(patch_size)
    if name == OURS:
        # The demo compares every batch itself; the check makes most of a worker's first ones twice.
        with DeterministicAugmenter(loader, transform, processes, NUM_CACHED, seed=seed, check=False) as ours:
            yield ours
        return
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import NonDetMultiThreadedAugmenter

    # The best that it offers: NumPy and torch are seeded, with 32 bits. Python's `random`, from which batchgenerators' noise
    # draws, is not, and the order is left to whichever worker is first.
    seeds = [SeedTree(seed).child(f"stock/{worker}").integer(bits=32) for worker in range(processes)]
    stock = NonDetMultiThreadedAugmenter(loader, transform, processes, num_cached=NUM_CACHED, seeds=seeds)
    try:
        yield stock
    finally:
        stock._finish()
