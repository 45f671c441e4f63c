"""Pipelines for test_hash_order, in a module of their own: fresh interpreters import it."""

from __future__ import annotations

import random
import threading

import numpy as np

#: A setting that programs change.
SCALE = 1.0


class Numbers:
    """Endless, as data sets of patches are."""

    def __len__(self):
        return 10**7

    def __getitem__(self, i):
        return {"x": np.arange(3.0) + i}


def takes_a_sets_order(**batch):
    """Of so many names that no two hash seeds give one order: of four, one program in fifty has the
    first interpreter's.
    """
    return {**batch, "names": list({f"case_{number}" for number in range(20)})}


def seeds_from_a_text(**batch):
    return {**batch, "x": batch["x"] + random.Random(hash("case_7") % 1000).random()}


def sorts(**batch):
    return {**batch, "names": sorted({"flair", "t1", "t1ce", "t2"}), "set": {"flair", "t1"}}


def scales(**batch):
    return {**batch, "x": batch["x"] * SCALE}


class HoldsALock:
    def __init__(self):
        self.lock = threading.Lock()

    def __call__(self, **batch):
        with self.lock:
            return takes_a_sets_order(**batch)
