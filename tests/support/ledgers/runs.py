"""Runs that keep a ledger, and how tests look into one. Importable by workers of every start
method.
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
    """A small batch of random numbers that says which it is."""

    def __init__(self, scale: float = 1.0, fails_at: tuple[int, ...] = ()) -> None:
        super().__init__(None, 1, infinite=True)
        self.scale, self.fails_at = scale, fails_at

    def generate_train_batch(self) -> dict[str, Any]:
        now = current()
        if now.step in self.fails_at:
            raise LookupError("no such case")
        return {"data": self.scale * np.random.standard_normal((2, 3)), "at": (now.epoch, now.step)}


def augmenter(
    ledger: Path | None,
    processes: int = 0,
    loader: Any = None,
    transform: Any = None,
    **options: Any,
) -> DeterministicAugmenter:
    """Seed 1, four batches in an epoch."""
    options = {"seed": 1, "batches_per_epoch": 4, "check": False, **options}
    return DeterministicAugmenter(loader or Draws(), transform, processes, ledger=ledger, **options)


def run(ledger: Path, batches: int = 12, **options: Any) -> Path:
    """So many batches, epoch after epoch, and the end."""
    with augmenter(ledger, **options) as augmenter_of_run:
        take(augmenter_of_run, batches)
    return ledger


def take(made: DeterministicAugmenter, batches: int) -> list[Any]:
    """The next batches, over the ends of epochs."""
    taken: list[Any] = []
    while len(taken) < batches:
        try:
            taken.append(next(made))
        except StopIteration:
            continue
    return taken


def lines(ledger: Path) -> list[dict[str, Any]]:
    """All of it."""
    text = ledger.read_bytes()
    assert text.endswith(b"\n"), "whole lines only"
    return [json.loads(line) for line in text.splitlines()]


def kinds(ledger: Path) -> list[str]:
    return [line["kind"] for line in lines(ledger)]


def steps(ledger: Path) -> list[tuple[int, int]]:
    """Of every batch's line, in their order."""
    return [(line["epoch"], line["step"]) for line in lines(ledger) if line["kind"] == "batch"]


def digest(ledger: Path) -> str:
    """That of the last epoch that ended."""
    return str([line["digest"] for line in lines(ledger) if line["kind"] == "epoch"][-1])


def rewritten(
    ledger: Path, to: Path, change: Callable[[list[dict[str, Any]]], Any], fitting: bool = False
) -> Path:
    """A copy with its lines changed in place; with `fitting` the epochs' digests are made anew."""
    found = lines(ledger)
    change(found)
    course = RunningDigest(found[0])
    for line in found if fitting else ():
        if line["kind"] == "batch":
            course.add(line)
        elif line["kind"] == "epoch":
            line.update(course.end_epoch())
    to.write_bytes(b"".join(encoded(record) for record in found))
    return to
