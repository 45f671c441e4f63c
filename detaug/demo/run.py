"""The demo: one pipeline on real MRI, through the stock augmenter and through detaug's."""

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

#: Batches of a run.
BATCHES = 24
#: Samples of a batch.
BATCH_SIZE = 2
#: Edge of a sample's patch, in voxels.
PATCH = 24
SEED = 1234
#: Batches that may wait for the consumer; the same for every augmenter.
NUM_CACHED = 4
STOCK = "NonDetMultiThreadedAugmenter"
OURS = "DeterministicAugmenter"
#: Enough hexadecimal digits to tell any two runs apart by eye.
DIGITS = 8


@dataclass(frozen=True)
class Run(Row):
    """A run, which is compared with the first one of its augmenter.

    Attributes:
        augmenter: `STOCK` or `OURS`.
        processes: worker processes.
        kill: a worker is killed by SIGKILL after a third of the batches.
        resume: the second half of the batches is a new augmenter's, with one process more, that has
            loaded the state.
        fingerprint: of the batches' fingerprints in their order.
    """

    augmenter: str = OURS
    processes: int = 2
    kill: bool = False
    resume: bool = False
    fingerprint: str = ""

    @property
    def ok(self) -> bool:
        """False if a run of detaug's differs; the stock augmenter's may."""
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
    """The result of the demo."""

    rows: tuple[Run, ...]

    def render(self) -> list[RenderableType]:
        """Return the table, the notices and a line for each augmenter."""
        runs = table(
            "the same pipeline and seed",
            self.rows,
            ("processes", _processes_cell, True),
            ("fingerprint", _fingerprint_cell, False),
        )
        notices = []
        for run in self.rows:
            notices += [Text(f"{run.what}: {notice}", "dim") for notice in run.notices]
        return [runs, Text(), *notices, self._stock_line(), self._own_line()]

    def _stock_line(self) -> Text:
        """Return whether the two runs of the stock augmenter agree."""
        verdicts = [run.verdict for run in self.rows if run.augmenter == STOCK]
        agree = "differ" if DIFFERENT in verdicts else "agree this time"
        return Text.assemble(
            f"batchgenerators' {STOCK}: two runs with the same seeds ", (agree, "bold"), "."
        )

    def _own_line(self) -> Text:
        """Return whether all runs of detaug's augmenter agree."""
        runs = [run for run in self.rows if run.augmenter == OURS]
        if self.ok:
            text = f"all {len(runs)} runs agree, byte for byte and in the same order"
            return Text.assemble(f"detaug's {OURS}: ", (text, "bold green"), ".")
        differing = [run for run in runs if not run.ok]
        text = (
            f"{len(differing)} of {len(runs)} runs differ from the first: this is a bug in detaug"
        )
        return Text.assemble(f"detaug's {OURS}: ", (text, "bold red"), ".")


def _processes_cell(run: Run) -> str:
    """Return the cell of the column "processes"."""
    return str(run.processes)


def _fingerprint_cell(run: Run) -> str:
    """Return the cell of the column "fingerprint"."""
    return run.fingerprint[:DIGITS]


def run_all(bar: Progress) -> Runs:
    """Make all runs, one after another.

    Args:
        bar: is updated.

    Raises:
        NotInstalled: nilearn is not.
    """
    # Here, so that no row's time contains it, and NotInstalled is raised before the first.
    load_template()
    references: dict[str, str] = {}
    pending = []
    for run in RUNS:
        name = f"{run.what}, {run.processes} processes"
        pending.append(PendingRow(name, partial(_compared, run, references, bar), BATCHES))
    return Runs(tuple(run_rows(pending, bar)))


def _compared(run: Run, references: dict[str, str], bar: Progress) -> Run:
    """Make a run's batches, and compare them with the first run of its augmenter.

    Args:
        run: without a fingerprint.
        references: fingerprint of each augmenter's first run; this one's is added if it is first.
        bar: is updated.
    """
    run_fingerprint = fingerprint(_batch_fingerprints(run, bar))
    run = replace(run, fingerprint=run_fingerprint)
    # The two augmenters draw different numbers, so each is compared only with itself.
    if run.augmenter not in references:
        references[run.augmenter] = run_fingerprint
        return run
    is_equal = run_fingerprint == references[run.augmenter]
    return replace(run, verdict=EQUAL if is_equal else DIFFERENT)


def _batch_fingerprints(run: Run, bar: Progress) -> list[str]:
    """Return the fingerprints of a run's batches."""
    fingerprints: list[str] = []

    def take_until(augmenter: Any, end: int) -> None:
        while len(fingerprints) < end:
            batch = next(augmenter)
            pid = batch.pop("pid")
            fingerprints.append(fingerprint(batch))
            # Early, so that the batches that the killed worker was making are compared as well.
            if run.kill and len(fingerprints) == BATCHES // 3:
                os.kill(pid, signal.SIGKILL)
            bar.advance()

    with _augmenter_of(run.augmenter, run.processes) as augmenter:
        if not run.resume:
            take_until(augmenter, BATCHES)
            return fingerprints
        take_until(augmenter, BATCHES // 2)
        # Workers still hold batches at this time: the state lacks them, and they are made again.
        state = augmenter.state_dict()
    with _augmenter_of(run.augmenter, run.processes + 1) as augmenter:
        augmenter.load_state_dict(state)
        take_until(augmenter, BATCHES)
    return fingerprints


@contextmanager
def _augmenter_of(name: str, processes: int) -> Iterator[Any]:
    """Yield an augmenter over the demo's MRI, with batchgenerators' transforms.

    Args:
        name: `STOCK` or `OURS`.
        processes: worker processes.
    """
    patch_size = (PATCH,) * 3
    loader = MRIPatchLoader([load_template()], BATCH_SIZE, enlarged(patch_size))
    augment = training_transforms(patch_size)

    def transform(**batch: Any) -> dict[str, Any]:
        # The worker's process id is no part of what is compared: a killed worker's changes.
        return {**augment(**batch), "pid": os.getpid()}

    if name == OURS:
        # The demo compares every batch itself. The run-time check would make most of a worker's
        # first batches twice.
        with DeterministicAugmenter(
            loader, transform, processes, NUM_CACHED, seed=SEED, check=False
        ) as augmenter:
            yield augmenter
        return
    from batchgenerators.dataloading.nondet_multi_threaded_augmenter import (
        NonDetMultiThreadedAugmenter,
    )

    # The best that it offers: NumPy and torch are seeded, with 32 bits. Python's `random`, from
    # which batchgenerators' noise draws, is not, and the order is that of the workers' speed.
    tree = SeedTree(SEED)
    seeds = [tree.child(f"stock/{worker}").integer(bits=32) for worker in range(processes)]
    stock = NonDetMultiThreadedAugmenter(
        loader, transform, processes, num_cached=NUM_CACHED, seeds=seeds
    )
    try:
        yield stock
    finally:
        stock._finish()
