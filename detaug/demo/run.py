"""The demo: one pipeline on real MRI through the stock augmenter and through detaug's, under varied
circumstances.
"""

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

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.demo.loader import MRIPatchLoader, enlarged, training_transforms
from detaug.demo.mri import load_template
from detaug.objects.fingerprints import fingerprint
from detaug.seeding.tree import SeedTree
from detaug.system.progress import Progress
from detaug.verification.rows import DIFFERENT, EQUAL, PendingRow, Report, Row, run_rows, table

#: Batches of a run, samples of a batch, the edge of their patches in voxels, and the seed.
BATCHES, BATCH_SIZE, PATCH, SEED = 24, 2, 24, 1234
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
        resume: half of the batches are taken from a new augmenter, with one process more, that has
            loaded the state.
        fingerprint: of its batches' fingerprints in their order.
    """

    augmenter: str = OURS
    processes: int = 2
    kill: bool = False
    resume: bool = False
    fingerprint: str = ""

    @property
    def ok(self) -> bool:
        return self.augmenter == STOCK or super().ok


RUNS = (
    Run("batchgenerators", augmenter=STOCK),
    Run("batchgenerators, again", augmenter=STOCK),
    Run("detaug, in this process", processes=0),
    Run("detaug"),
    Run("detaug, a worker killed", kill=True),
    Run("detaug, stopped, resumed with 3 processes", resume=True),
)


@dataclass(frozen=True)
class Runs(Report[Run]):
    """What the demo found."""

    rows: tuple[Run, ...]

    def shown(self) -> list[RenderableType]:
        runs = table(
            "the same pipeline and seed",
            self.rows,
            ("processes", lambda run: str(run.processes), True),
            ("fingerprint", lambda run: run.fingerprint[:DIGITS], False),
        )
        notices = [
            Text(f"{run.what}: {notice}", "dim") for run in self.rows for notice in run.notices
        ]
        stock_differs = any(run.verdict == DIFFERENT for run in self.rows if run.augmenter == STOCK)
        agree = "differ" if stock_differs else "agree this time"
        ours = [run for run in self.rows if run.augmenter == OURS]
        some = (
            f"{sum(not run.ok for run in ours)} of {len(ours)} runs differ from the first: "
            "this "
            "is a bug in detaug"
        )
        every = f"all {len(ours)} runs agree, byte for byte and in the same order"
        return [
            runs,
            Text(),
            *notices,
            Text.assemble(
                f"batchgenerators' {STOCK}: two runs with the same seeds ", (agree, "bold"), "."
            ),
            Text.assemble(
                f"detaug's {OURS}: ", (every, "bold green") if self.ok else (some, "bold red"), "."
            ),
        ]


def run_all(shown: Progress) -> Runs:
    """Make all runs, one after another."""
    load_template()  # once for all, or NotInstalled
    first: dict[str, str] = {}

    def made(planned: Run) -> Run:
        run = replace(planned, fingerprint=fingerprint(_prints(planned, shown)))
        if run.augmenter not in first:
            first[run.augmenter] = run.fingerprint
            return run
        return replace(run, verdict=EQUAL if run.fingerprint == first[run.augmenter] else DIFFERENT)

    planned = [
        PendingRow(f"{each.what}, {each.processes} processes", partial(made, each), BATCHES)
        for each in RUNS
    ]
    return Runs(tuple(run_rows(planned, shown)))


def _prints(run: Run, shown: Progress) -> list[str]:
    """Fingerprints of a run's batches."""
    prints: list[str] = []

    def take(augmenter: Any, until: int) -> None:
        while len(prints) < until:
            batch = next(augmenter)
            pid = batch.pop("pid")
            prints.append(fingerprint(batch))
            if run.kill and len(prints) == BATCHES // 3:
                os.kill(pid, signal.SIGKILL)
            shown.advance()

    with augmenter_of(run.augmenter, run.processes) as augmenter:
        take(augmenter, BATCHES // 2 if run.resume else BATCHES)
        state = augmenter.state_dict() if run.resume else None
    if state is not None:
        with augmenter_of(run.augmenter, run.processes + 1) as augmenter:
            augmenter.load_state_dict(state)
            take(augmenter, BATCHES)
    return prints


@contextmanager
def augmenter_of(name: str, processes: int, patch: int = PATCH) -> Iterator[Any]:
    """`STOCK` or `OURS` over the demo's MRI, with batchgenerators' transforms."""
    patch_size = (patch,) * 3
    loader = MRIPatchLoader([load_template()], BATCH_SIZE, enlarged(patch_size))
    augment = training_transforms(patch_size)

    def transform(**batch: Any) -> dict[str, Any]:
        return {**augment(**batch), "pid": os.getpid()}  # who made it, which may change

    if name == OURS:
        # The demo compares every batch itself; the check makes most of a worker's first ones twice.
        with DeterministicAugmenter(
            loader, transform, processes, NUM_CACHED, seed=SEED, check=False
        ) as ours:
            yield ours
        return
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import (
        NonDetMultiThreadedAugmenter,
    )

    # The best that it offers: NumPy and torch are seeded, with 32 bits. Python's `random`, from
    # which batchgenerators' noise draws, is not, and the order is left to whichever worker is
    # first.
    seeds = [
        SeedTree(SEED).child(f"stock/{worker}").integer(bits=32) for worker in range(processes)
    ]
    stock = NonDetMultiThreadedAugmenter(
        loader, transform, processes, num_cached=NUM_CACHED, seeds=seeds
    )
    try:
        yield stock
    finally:
        stock._finish()
