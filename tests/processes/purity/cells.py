"""What can carry something from batch to batch, each kind as small as it can be.

Calling a cell gives a number that goes into the batch. Used correctly, a cell may change, but its numbers do not
depend on what was drawn before, but for generators that detaug seeds; used incorrectly, they do.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

Draw = Callable[[], float]

#: What a module keeps.
OF_THE_MODULE: dict[str, Any] = {"count": 0, "generator": np.random.default_rng(3)}


class Cell:
    """State in attributes of an object.

    Args:
        correct: how it is used.
        size: elements of what has a size.
    """

    def __init__(self, correct: bool, size: int) -> None:
        self.correct = correct
        self.size = size
        self.prepare()

    def prepare(self) -> None:
        """Make the state."""

    def __call__(self) -> float:
        """The number."""
        raise NotImplementedError


class Counting(Cell):
    def prepare(self) -> None:
        self.count = 0

    def __call__(self) -> float:
        self.count += 1
        return 0.0 if self.correct else float(self.count)


class Shuffled(Cell):
    def prepare(self) -> None:
        self.order = list(range(self.size))

    def __call__(self) -> float:
        if self.correct:
            return float(random.sample(self.order, 1)[0])
        random.shuffle(self.order)
        return float(self.order[0])


class Memory(Cell):
    def prepare(self) -> None:
        self.known: dict[int, float] = {}

    def __call__(self) -> float:
        key = random.randrange(self.size)
        value = self.known.setdefault(key, key**0.5)
        return value if self.correct else value + len(self.known)


class Loaded(Cell):
    def prepare(self) -> None:
        self.atlas: Any = None

    def __call__(self) -> float:
        if self.atlas is None:
            self.atlas = np.arange(self.size) if self.correct else np.random.random(self.size)
        return float(self.atlas[-1])


class Tensor(Cell):
    def prepare(self) -> None:
        self.buffer = torch.zeros(self.size)

    def __call__(self) -> float:
        if self.correct:
            self.buffer.fill_(torch.rand(()).item())
        else:
            self.buffer += torch.rand(())
        return float(self.buffer[0])


class Array(Cell):
    def prepare(self) -> None:
        self.buffer = np.arange(self.size)

    def __call__(self) -> float:
        if self.correct:
            self.buffer[:] = np.random.randint(1000)
        else:
            np.random.shuffle(self.buffer)
        return float(self.buffer[0])


class Module(torch.nn.Module):
    """A buffer as networks have it."""

    def __init__(self, correct: bool, size: int) -> None:
        super().__init__()
        self.correct = correct
        self.register_buffer("mean", torch.zeros(size))

    def forward(self) -> float:
        with torch.no_grad():
            now = torch.rand(())
            self.mean += now
            return float(now if self.correct else self.mean[0])


class Slotted:
    __slots__ = ("correct", "count", "generator")

    def __init__(self, correct: bool, size: int) -> None:
        self.correct = correct
        self.count = 0
        self.generator = np.random.default_rng(size)

    def __call__(self) -> float:
        self.count += 1
        return float(self.generator.random()) + (0 if self.correct else self.count)


class OfTheClass(Cell):
    count = 0

    def __call__(self) -> float:
        type(self).count += 1
        return 0.0 if self.correct else float(type(self).count)


class InTheModule(Cell):
    def __call__(self) -> float:
        OF_THE_MODULE["count"] += 1
        return 0.0 if self.correct else float(OF_THE_MODULE["count"])


class ModulesGenerator(Cell):
    def __call__(self) -> float:
        return float(OF_THE_MODULE["generator"].random())


class OwnGenerator(Cell):
    """Of four kinds, with a seed or without: detaug seeds them all."""

    def prepare(self) -> None:
        seed = 5 if self.correct else None
        kinds = (np.random.default_rng, np.random.RandomState, random.Random, np.random.SFC64)
        made: Any = kinds[self.size % len(kinds)](seed)
        self.generator = np.random.Generator(made) if isinstance(made, np.random.SFC64) else made

    def __call__(self) -> float:
        return float(self.generator.random())


class MadeOnFirstUse(Cell):
    """A generator that is not there when the pipeline is handed in, seeded by the batch or by nobody."""

    def prepare(self) -> None:
        self.generator: Any = None

    def __call__(self) -> float:
        if self.correct:
            return float(np.random.default_rng(np.random.randint(2**31)).random())
        if self.generator is None:
            self.generator = np.random.default_rng(None if self.size % 2 else 5)
        return float(self.generator.random())


class ToldEpochs(Cell):
    """Changes what it finds when it is told an epoch."""

    def prepare(self) -> None:
        self.sigma = 1.0

    def set_epoch(self, epoch: int) -> None:
        self.sigma = 0.5**epoch if self.correct else self.sigma * 0.5

    def __call__(self) -> float:
        return self.sigma * random.random()


def closure(correct: bool, size: int) -> Draw:
    count = 0

    def draw() -> float:
        nonlocal count
        count += 1
        return 0.0 if correct else float(count)

    return draw


def closure_over_a_generator(correct: bool, size: int) -> Draw:
    generator = np.random.default_rng(size if correct else None)
    return lambda: float(generator.random())


CELLS: dict[str, Callable[[bool, int], Any]] = {
    "counter": Counting,
    "list shuffled in place": Shuffled,
    "dict cache": Memory,
    "None, then loaded": Loaded,
    "tensor buffer": Tensor,
    "numpy buffer": Array,
    "nn.Module buffer": Module,
    "__slots__": Slotted,
    "class attribute": OfTheClass,
    "module global": InTheModule,
    "generator of a module": ModulesGenerator,
    "generator": OwnGenerator,
    "generator made on first use": MadeOnFirstUse,
    "set_epoch": ToldEpochs,
    "closure": closure,
    "closure over a generator": closure_over_a_generator,
}

#: Elements: around powers of two and thousands, and more than 64 kB of numbers.
SIZES = (3, 8, 511, 512, 513, 1000, 1001, 20_000)
