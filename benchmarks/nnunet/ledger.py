"""Rows: what a ledger adds to the time of a batch, of nnU-Net's own loader and transforms, and of detaug's, which are quicker."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.nnunet.loaders import DETAUG, SEED, Task, make_loader
from benchmarks.report import Check, Row
from benchmarks.transforms.timing import one_thread
from detaug.bench.measuring import in_fresh_process

#: Of detaug's; nnU-Net's batches take ten times as long, and a share of them is found with fewer.
BATCHES, ROUNDS = 50, 5
STOCK_BATCHES, STOCK_ROUNDS = 10, 3
ALLOWED = 1.02


def measure_ledger(name: str, system: str, task: Task, data: Preprocessed, quick: bool) -> Row:
    """CPU time of making batches, ready for their way to the user, and by turns with it, batch by batch, of what a ledger adds:
    fingerprints of the batch that was just made, and its line and leaf in the Merkle tree. In one process, on one thread. (The
    difference of two whole times would be lost in the noise of a machine that others use as well.)"""
    rounds, batches = (ROUNDS, BATCHES) if system == DETAUG else (STOCK_ROUNDS, STOCK_BATCHES)
    if quick:
        rounds, batches = 1, 3
    measured = [
        in_fresh_process(_both, system, task, data, number, batches) for number in range(rounds)
    ]
    made = [sum(each) / len(each) for each, _ in measured]
    added = [sum(each) / len(each) for _, each in measured]
    ratios = [1 + more / plain for plain, more in zip(made, added, strict=True)]
    return Row(
        name=f"{name}, {system}'s loader, with a ledger",
        unit="CPU ms per batch",
        ours=median(plain + more for plain, more in zip(made, added, strict=True)) * 1e3,
        checks=[
            Check(
                "without one",
                median(made) * 1e3,
                median(ratios),
                (min(ratios), max(ratios)),
                "<=",
                ALLOWED,
            ),
        ],
        repeats=rounds,
        settings={**task.settings(), "batches": batches},
        details={"added_ms_per_batch": [1e3 * each for each in added], "ratios": ratios},
    )


def _both(
    system: str, task: Task, data: Preprocessed, number: int, batches: int
) -> tuple[list[float], list[float]]:
    """CPU seconds of making each batch, and of its ledger."""
    from detaug.ledger.lines import Key, note_of
    from detaug.ledger.writing import LedgerWriter
    from detaug.pipeline.producer import Pipeline, Producer
    from detaug.seeding.current import SeedBranch
    from detaug.seeding.tree import SeedTree
    from detaug.sources import resolve_source
    from detaug.transport.transfer import pack

    one_thread()
    pipeline = Pipeline(
        resolve_source(make_loader(system, task, data), None), None, must_travel=False
    )
    producer = Producer(pipeline.pristine, SeedBranch(SeedTree(SEED), 1))
    producer.make(number, batches)  # what is done once
    made, added = [], []
    with TemporaryDirectory() as folder:
        ledger = LedgerWriter(Path(folder) / "run.jsonl", _header)
        ledger.delivered(Key(number, 0), 0, note_of({"data": 0}, 0.0), 0.0, 0)
        for step in range(batches):
            begin = time.process_time()
            batch: Any = producer.make(number, step)
            pack(batch)
            between = time.process_time()
            note = note_of(batch, 0.0)
            ledger.delivered(Key(number, step + 1), step, note, 0.0, 0)
            added.append(time.process_time() - between)
            made.append(between - begin)
        ledger.close()
    return made, added


def _header() -> dict[str, Any]:
    from detaug.ledger.header import environment, header

    return header([], environment(), seed=SEED, name="", num_streams=1, rank=0, world_size=1)
