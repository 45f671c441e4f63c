"""Runs that keep a ledger, and functions that read one.

Workers of every start method can import this module.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from batchgenerators.dataloading.data_loader import DataLoader

from detaug import DeterministicAugmenter, current
from detaug.ledger.lines import RunningDigest, encoded


class Draws(DataLoader):
    """A loader of small batches of random numbers, each with its (epoch, step)."""

    def __init__(self, scale: float = 1.0, fails_at: tuple[int, ...] = ()) -> None:
        super().__init__(None, 1, infinite=True)
        self.scale = scale
        self.fails_at = fails_at

    def generate_train_batch(self) -> dict[str, Any]:
        context = current()
        if context.step in self.fails_at:
            raise LookupError("no such case")
        data = self.scale * np.random.standard_normal((2, 3))
        return {"data": data, "at": (context.epoch, context.step)}


def augmenter(
    ledger: Path | None,
    processes: int = 0,
    loader: Any = None,
    transform: Any = None,
    **options: Any,
) -> DeterministicAugmenter:
    """Return an augmenter with seed 1 and four batches in an epoch."""
    options = {"seed": 1, "batches_per_epoch": 4, "check": False, **options}
    return DeterministicAugmenter(loader or Draws(), transform, processes, ledger=ledger, **options)


def run(ledger: Path, batches: int = 12, **options: Any) -> Path:
    """Write the ledger of a run of `batches` batches over several epochs; return its path."""
    with augmenter(ledger, **options) as augmenter_of_run:
        take(augmenter_of_run, batches)
    return ledger


def take(augmenter_of_run: DeterministicAugmenter, num_batches: int) -> list[Any]:
    """Return the next batches, continuing past the ends of epochs."""
    batches: list[Any] = []
    while len(batches) < num_batches:
        try:
            batches.append(next(augmenter_of_run))
        except StopIteration:
            continue
    return batches


def lines(ledger: Path) -> list[dict[str, Any]]:
    """Return all lines of a ledger, the header first."""
    text = ledger.read_bytes()
    assert text.endswith(b"\n"), "whole lines only"
    return [json.loads(line) for line in text.splitlines()]


def kinds(ledger: Path) -> list[str]:
    """Return the kind of every line, in order."""
    return [line["kind"] for line in lines(ledger)]


def steps(ledger: Path) -> list[tuple[int, int]]:
    """Return the (epoch, step) of every batch's line, in order."""
    return [(line["epoch"], line["step"]) for line in lines(ledger) if line["kind"] == "batch"]


def digest(ledger: Path) -> str:
    """Return the digest of the last epoch that ended."""
    digests = [line["digest"] for line in lines(ledger) if line["kind"] == "epoch"]
    return str(digests[-1])


def rewritten(
    ledger: Path, to: Path, change: Callable[[list[dict[str, Any]]], Any], fitting: bool = False
) -> Path:
    """Write a copy of a ledger with changed lines; return its path.

    Args:
        ledger: what is copied.
        to: path of the copy.
        change: function that changes the list of lines in place.
        fitting: whether the digests of epochs are recomputed to fit the changed lines.
    """
    records = lines(ledger)
    change(records)
    if fitting:
        _recompute_digests(records)
    to.write_bytes(b"".join(encoded(record) for record in records))
    return to


def _recompute_digests(records: list[dict[str, Any]]) -> None:
    """Replace the digest of every epoch by that of the batches before it."""
    running_digest = RunningDigest(records[0])
    for record in records:
        if record["kind"] == "batch":
            running_digest.add(record)
        elif record["kind"] == "epoch":
            record.update(running_digest.end_epoch())
