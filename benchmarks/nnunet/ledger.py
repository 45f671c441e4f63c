"""Rows: what a ledger adds to the time of a batch of detaug's loader, which is the quickest there is for nnU-Net."""

from __future__ import annotations

import math
import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.measure import in_fresh_process
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import DETAUG, SEED, Task, make_loader
from benchmarks.report import Check, Row
from benchmarks.transforms.timing import one_thread

BATCHES, TURNS, ROUNDS = 25, 4, 5
ALLOWED = 1.02


def measure_ledger(name: str, task: Task, data: Preprocessed, quick: bool) -> Row:
    """CPU time of the same batches without and with a ledger, by turns in one process on one thread: read, augmented and made
    ready for their way to the user; and with a ledger also fingerprinted, and written down with the Merkle tree. Nothing that
    both do afterwards is counted."""
    rounds, batches = (1, 3) if quick else (ROUNDS, BATCHES)
    measured = [in_fresh_process(_both, task, data, number, batches, 2 if quick else TURNS) for number in range(rounds)]
    ratios = [sum(noted) / sum(plain) for plain, noted in measured]
    plain = median(seconds for each, _ in measured for seconds in each)
    added = median((sum(noted) - sum(plain)) / len(plain) for plain, noted in measured)
    return Row(
        name=f"{name}, with a ledger",
        unit="CPU ms per batch",
        ours=median(seconds for _, each in measured for seconds in each) * 1e3,
        checks=[
            Check("without one", plain * 1e3, median(ratios), (min(ratios), max(ratios)), "<=", ALLOWED),
        ],
        repeats=rounds,
        settings={**task.settings(), "batches": batches, "turns": TURNS},
        details={"added_ms_per_batch": added * 1e3, "ratios": ratios},
    )


def _both(task: Task, data: Preprocessed, number: int, batches: int, turns: int) -> tuple[list[float], list[float]]:
    """CPU seconds of each batch without and with: the least of several times, by turns."""
    from detaug.ledger.lines import Key
    from detaug.ledger.notes import note_of
    from detaug.ledger.writing import LedgerWriter
    from detaug.pipeline.producer import Pipeline, Producer
    from detaug.seeding.branch import SeedBranch
    from detaug.seeding.tree import SeedTree
    from detaug.sources import resolve_source
    from detaug.transport.transfer import pack

    one_thread()
    pipeline = Pipeline(resolve_source(make_loader(DETAUG, task, data), None), None, must_travel=False)
    producer = Producer(pipeline.pristine, SeedBranch.of(SeedTree(SEED), 1))
    producer.make(number, batches)  # what is done once is the same for both
    seconds: tuple[list[float], list[float]] = ([], [])
    with TemporaryDirectory() as folder:
        ledger = LedgerWriter(Path(folder) / "run.jsonl", _header)
        ledger.delivered(Key(number, 0), 0, note_of({"data": 0}, 0.0), 0.0, 0)
        for step in range(batches):
            least = [math.inf, math.inf]
            for turn in range(turns):
                for which in (0, 1) if turn % 2 == 0 else (1, 0):
                    begin = time.process_time()
                    batch: Any = producer.make(number, step)
                    if which:
                        batch = batch, note_of(batch, 0.0)
                    pack(batch)
                    if which:
                        ledger.delivered(Key(number, step * turns + turn + 1), step, batch[1], 0.0, 0)
                    least[which] = min(least[which], time.process_time() - begin)
            for which in (0, 1):
                seconds[which].append(least[which])
        ledger.close()
    return seconds


def _header() -> dict[str, Any]:
    from detaug.ledger.header import environment, header

    return header([], environment(), seed=SEED, name="", num_streams=1, rank=0, world_size=1)
