"""Loaders with `state_dict` and `load_state_dict` of their own.

Each writes a line into a file, the diary, for every call of `__next__`: the pid of the process that
calls. Workers of every start method can import this module.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import detaug
from tests.support.witness import WITNESS, witness


def calls(diary: Path) -> list[int]:
    """Return the pid of every call in a diary, in order."""
    if not diary.exists():
        return []
    return [int(line) for line in diary.read_text().split()]


def note(diary: str) -> None:
    """Write the pid of the calling process into a diary."""
    # Unbuffered and in append mode, so that lines of several processes do not mix.
    with open(diary, "ab", buffering=0) as file:
        file.write(b"%d\n" % os.getpid())


class Chain:
    """An iterator whose batch depends on all batches before it in its stream.

    It ends after `length` batches, or never with length 0. Its state is nested and holds a list.
    """

    def __init__(self, diary: Path, length: int = 0) -> None:
        self.diary = str(diary)
        self.length = length
        self.count = 0
        self.link = {"sum": 0.0, "last": [0.0, 0.0]}

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> dict[str, Any]:
        note(self.diary)
        if self.length and self.count == self.length:
            self.count = 0
            raise StopIteration
        self.count += 1
        draw = float(np.random.standard_normal())
        new_sum = self.link["sum"] * 0.9 + draw
        last_two = [self.link["last"][1], draw]
        self.link = {"sum": new_sum, "last": last_two}
        return {
            "count": self.count,
            "sum": self.link["sum"],
            "last": np.array(self.link["last"]),
            "stream": detaug.current().stream,
            "own": self.extra(),
            WITNESS: witness(),
        }

    def extra(self) -> Any:
        """Return what a subclass adds to every batch."""
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "link": self.link}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.link = state["link"]


class SteppedChain(Chain):
    """A `Chain` whose state can be saved but not loaded."""

    load_state_dict = None  # type: ignore[assignment]


class EpochChain(Chain):
    """A `Chain` that has `set_epoch`."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.link["sum"] = 100.0 * epoch + float(np.random.random())

    def extra(self) -> Any:
        return self.epoch


class OwnGenerator(Chain):
    """A `Chain` that owns a generator, which is part of its state."""

    def __init__(self, diary: Path, length: int = 0) -> None:
        super().__init__(diary, length)
        self.rng = np.random.default_rng(5)
        self.total = 0

    def extra(self) -> Any:
        self.total += int(self.rng.integers(1000))
        return self.total

    def state_dict(self) -> dict[str, Any]:
        # A `state_dict` that draws must not change the batches that follow.
        np.random.random(3)
        return {**super().state_dict(), "total": self.total, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.total = state["total"]
        self.rng.bit_generator.state = state["rng"]


class StatefulDataLoader:
    """An iterable that behaves as torchdata's loader of this name.

    It draws a new order in every pass. After `load_state_dict` the next `iter` continues the pass
    of the state.
    """

    def __init__(self, diary: Path, length: int = 7) -> None:
        self.diary = str(diary)
        self.length = length
        self.passes = 0
        self.position = 0
        self.order: list[int] = []
        self.was_loaded = False

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Any]:
        if not self.was_loaded:
            self.order = np.random.permutation(self.length).tolist()
            self.position = 0
        self.was_loaded = False
        note(self.diary)
        while self.position < self.length:
            self.position += 1
            yield {
                "item": self.order[self.position - 1],
                "passes": self.passes,
                "noise": np.random.random(2),
                WITNESS: witness(),
            }
            note(self.diary)
        self.passes += 1

    def state_dict(self) -> dict[str, Any]:
        return {"order": self.order, "position": self.position, "passes": self.passes}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.order = state["order"]
        self.position = state["position"]
        self.passes = state["passes"]
        self.was_loaded = True


class Tuples(Chain):
    """A `Chain` whose state JSON changes: a tuple comes back as a list."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "shape": (1, 2)}


class Refusing(Chain):
    """A `Chain` whose `load_state_dict` always fails."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise RuntimeError("no way back")


class Forgetful(Chain):
    """A `Chain` whose state lacks the sum."""

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Noise:
    """A transform that draws from NumPy's global generator."""

    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "drawn": np.random.random(3)}
