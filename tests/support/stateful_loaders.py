"""Loaders with `state_dict` and `load_state_dict` of their own. Importable by workers of every
start method.

Each notes its `__next__` calls, with the process that made them, in a file.
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
    """The processes of all calls, in order."""
    if not diary.exists():
        return []
    return [int(line) for line in diary.read_text().split()]


def note(diary: str) -> None:
    with open(diary, "ab", buffering=0) as file:
        file.write(b"%d\n" % os.getpid())


class Chain:
    """An iterator that ends (or does not, with length 0): each batch depends on all that came
    before it in its stream.

    Its state is nested, and holds a list.
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
        drawn = float(np.random.standard_normal())
        self.link = {"sum": self.link["sum"] * 0.9 + drawn, "last": [self.link["last"][1], drawn]}
        return {
            "count": self.count,
            "sum": self.link["sum"],
            "last": np.array(self.link["last"]),
            "stream": detaug.current().stream,
            "own": self.extra(),
            WITNESS: witness(),
        }

    def extra(self) -> Any:
        return None

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "link": self.link}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.link = state["link"]


class SteppedChain(Chain):
    """The same, without a way back."""

    load_state_dict = None  # type: ignore[assignment]


class EpochChain(Chain):
    """Is told the epoch."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.link["sum"] = 100.0 * epoch + float(np.random.random())

    def extra(self) -> Any:
        return self.epoch


class OwnGenerator(Chain):
    """Owns a generator, which is part of its state."""

    def __init__(self, diary: Path, length: int = 0) -> None:
        super().__init__(diary, length)
        self.rng = np.random.default_rng(5)
        self.total = 0

    def extra(self) -> Any:
        self.total += int(self.rng.integers(1000))
        return self.total

    def state_dict(self) -> dict[str, Any]:
        # Whoever is asked for a state may draw.
        np.random.random(3)
        return {**super().state_dict(), "total": self.total, "rng": self.rng.bit_generator.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self.total = state["total"]
        self.rng.bit_generator.state = state["rng"]


class StatefulDataLoader:
    """As torchdata's: an iterable that shuffles anew in every pass, and whose next `iter` goes on
    from a loaded state.
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
    """Its state is not what JSON gives back."""

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "shape": (1, 2)}


class Refusing(Chain):
    """Cannot go back."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        raise RuntimeError("no way back")


class Forgetful(Chain):
    """Its state leaves the sum out."""

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Noise:
    """A transform that draws."""

    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "drawn": np.random.random(3)}
