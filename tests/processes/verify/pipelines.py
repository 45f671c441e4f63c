"""Pipelines to verify: sound ones, and ones with a single fault each. A faulty line ends in ``#
FAULT``.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
import uuid
from datetime import datetime
from os import getpid, urandom
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from batchgenerators.dataloading.data_loader import DataLoader, SlimDataLoaderBase

import detaug

Batch = dict[str, Any]


class Loader(SlimDataLoaderBase):
    """Endless, and keeps nothing between batches."""

    def __init__(self) -> None:
        super().__init__(None, 2)

    def generate_train_batch(self) -> Batch:
        return {
            "data": np.random.standard_normal((2, 1, 8, 8)).astype(np.float32),
            "torch": torch.rand(3),
        }


class Walker(SlimDataLoaderBase):
    """Endless and stateful, as a loader may be: each stream has its own copy."""

    def __init__(self) -> None:
        super().__init__(None, 2)
        self.position = np.zeros(3)

    def generate_train_batch(self) -> Batch:
        self.position += np.random.standard_normal(3)  # CARRIED
        return {"data": self.position.copy()}


class Totals:
    """Endless and stateful, with a state of its own."""

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0

    def __iter__(self) -> Totals:
        return self

    def __next__(self) -> Batch:
        self.count += 1
        self.total += np.random.standard_normal()
        return {"data": np.array([self.count, self.total])}

    def state_dict(self) -> dict[str, Any]:
        return {"count": self.count, "total": self.total}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]
        self.total = state["total"]


class TotalsLeftOut(Totals):
    """The same with a state that is not complete."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.count = state["count"]


class Ten(DataLoader):
    """Finite: ten items in a shuffled order."""

    def __init__(self) -> None:
        super().__init__(
            list(range(10)), 2, 1, 7, shuffle=True, infinite=False, return_incomplete=True
        )
        self.indices = list(range(10))

    def generate_train_batch(self) -> Batch:
        return {"data": np.array(self.get_indices(), dtype=np.float32)}


class Noise:
    """Sound: it draws from the global state, which detaug seeds."""

    def __call__(self, **batch: Any) -> Batch:
        batch["data"] = batch["data"] + np.random.standard_normal(batch["data"].shape).astype(
            np.float32
        )
        return batch


class OwnGenerator:
    """Sound: its generator belongs to the batch."""

    def __call__(self, **batch: Any) -> Batch:
        batch["data"] = batch["data"] + detaug.current().generator.random()
        return batch


class HarmlessHabits:
    """Sound: what it asks the clock, the system, the process and a set for does not reach the
    batch.
    """

    def __init__(self) -> None:
        self.calls = 0
        self.seconds = 0.0

    def __call__(self, **batch: Any) -> Batch:
        began = perf_counter()
        self.calls += 1
        scratch = f"{uuid.uuid4()}-{getpid()}-{datetime.now()}-{secrets.token_hex(4)}"
        names = {"a", "b", scratch}
        batch["data"] = batch["data"] * 2
        self.seconds += perf_counter() - began + 0 * len(names)
        return batch


class Compose:
    """One transform after the other."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self, **batch: Any) -> Batch:
        for transform in self.transforms:
            batch = transform(**batch)
        return batch


def sound() -> Any:
    return Loader(), Compose([Noise(), OwnGenerator()])


def stateful() -> Any:
    return Walker(), Noise()


def with_states() -> Any:
    return Totals(), None


def with_incomplete_states() -> Any:
    return TotalsLeftOut(), None


def finite() -> Any:
    return Ten(), Noise()


def iterable() -> Any:
    return [{"data": np.full((2, 2), float(number))} for number in range(20)], Noise()


def only_forked() -> Any:
    loader = Loader()
    loader.lock = threading.Lock()  # type: ignore[attr-defined]  # what no pickler takes
    return detaug.DeterministicAugmenter(loader, None, 0, stateless=True)


# --- one fault each
# ----------------------------------------------------------------------------------------------------


def _plus(batch: Batch, number: float) -> Batch:
    batch["data"] = batch["data"] + np.float32(number)
    return batch


def _hash_of(data: bytes) -> float:
    return int.from_bytes(data[:3], "little") / 2**24


class DefaultRng:
    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, np.random.default_rng().random())  # FAULT


class UnseededRandom:
    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, random.Random().random())  # FAULT


class UrandomByName:
    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, _hash_of(urandom(4)))  # FAULT


class Secrets:
    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, secrets.randbelow(1000))  # FAULT


class SeedsGlobalStateAnew:
    def __call__(self, **batch: Any) -> Batch:
        np.random.seed()  # FAULT
        return _plus(batch, np.random.rand())


class SeedsTorchAnew:
    def __call__(self, **batch: Any) -> Batch:
        torch.seed()  # FAULT
        return _plus(batch, torch.rand(1).item())


class TimeAsSeed:
    def __call__(self, **batch: Any) -> Batch:
        seed = int(time.time() * 1000) % 2**32  # FAULT
        return _plus(batch, np.random.default_rng(seed).random())


class PidAsSeed:
    def __call__(self, **batch: Any) -> Batch:
        rng = np.random.default_rng(getpid())  # FAULT
        return _plus(batch, rng.random())


class ParentAsSeed:
    def __call__(self, **batch: Any) -> Batch:
        rng = random.Random(os.getppid())  # FAULT
        return _plus(batch, rng.random())


class GroupAsSeed:
    def __call__(self, **batch: Any) -> Batch:
        generator = torch.Generator().manual_seed(os.getpgrp())  # FAULT
        return _plus(batch, torch.rand(1, generator=generator).item())


class ChoosesByTiming:
    def __call__(self, **batch: Any) -> Batch:
        began = perf_counter()  # FAULT
        doubled = batch["data"] * np.float32(1.1)
        halfway = perf_counter()
        tripled = batch["data"] * np.float32(1.2)
        batch["data"] = doubled if halfway - began < perf_counter() - halfway else tripled
        return batch


class CountsInItsClass:
    count = 0

    def __call__(self, **batch: Any) -> Batch:
        CountsInItsClass.count += 1  # FAULT
        return _plus(batch, self.count)


class HashOrder:
    def __call__(self, **batch: Any) -> Batch:
        keys = {f"channel {number}" for number in range(9)}
        first = next(iter(keys))  # FAULT
        return _plus(batch, int(first.split()[1]))


class DirectoryOrder:
    """Its files are what the folder of this module holds."""

    def __init__(self) -> None:
        self.files = [file.name for file in os.scandir(os.path.dirname(__file__))]  # FAULT

    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, _hash_of(self.files[0].encode()))


class ListedWithOs:
    def __call__(self, **batch: Any) -> Batch:
        files = os.listdir(os.path.dirname(__file__))  # FAULT
        return _plus(batch, _hash_of(files[0].encode()))


class UnseededInItsConstructor:
    """detaug gives the generator of a transform a seed for every batch: the batches are equal all
    the same.
    """

    def __init__(self) -> None:
        self.rng = np.random.default_rng()  # FAULT

    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, self.rng.random())


class DrawsInItsConstructor:
    def __init__(self) -> None:
        self.offset = np.random.rand()  # FAULT

    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, self.offset)


class FaultyLoader(Loader):
    def generate_train_batch(self) -> Batch:
        batch = super().generate_train_batch()
        batch["data"] += np.random.default_rng().random()  # FAULT
        return batch


class ShufflesItsList(SlimDataLoaderBase):
    """Shuffles a list where it is, and takes the first items."""

    def __init__(self) -> None:
        super().__init__(None, 3)
        self.cases = list(range(1_001))

    def generate_train_batch(self) -> Batch:
        np.random.shuffle(self.cases)  # FAULT
        return {"data": np.array(self.cases[:3], dtype=np.float64)}


def shuffling_but_declared_stateless() -> Any:
    return detaug.DeterministicAugmenter(ShufflesItsList(), None, 0, stateless=True)


class RaisesWhereTheClockIsWrong:
    """As a licence, a certificate or a time limit does."""

    def __call__(self, **batch: Any) -> Batch:
        if abs(time.time() - Path("/proc/self").stat().st_mtime) > 1e6:
            raise ValueError("it is another time")
        return batch


CHANCE = (
    "DefaultRng",
    "UnseededRandom",
    "UrandomByName",
    "Secrets",
    "SeedsGlobalStateAnew",
    "SeedsTorchAnew",
)


def faulty(*names: str) -> Any:
    """(loader, transform) with these faults, between sound transforms."""
    kinds = [globals()[name] for name in names]
    loaders = [kind for kind in kinds if issubclass(kind, SlimDataLoaderBase)]
    transforms = [kind() for kind in kinds if kind not in loaders]
    return (loaders[0] if loaders else Loader)(), Compose([Noise(), *transforms, Noise()])


class Ramp:
    """Becomes stronger with every batch, it is thought."""

    step = 0

    def __call__(self, **batch: Any) -> Batch:
        self.step += 1
        return {**batch, "data": batch["data"] * self.step}


def finite_with_ramp() -> Any:
    return Ten(), Compose([Noise(), Ramp()])


# --- values that no argument declares
# ----------------------------------------------------------------------------------------------------


class Offset:
    value = 0


def _with_offset(**batch: Any) -> Batch:
    return _plus(batch, Offset.value)


def with_offset() -> Any:
    return Loader(), _with_offset


def with_growing_offset() -> Any:
    Offset.value += 1
    return Loader(), _with_offset


class Cases(Loader):
    """Draws the order of its cases when it is made."""

    def __init__(self) -> None:
        super().__init__()
        self.order = list(range(300))
        random.shuffle(self.order)

    def generate_train_batch(self) -> Batch:
        batch = super().generate_train_batch()
        return _plus(batch, self.order[0])


class Drawn:
    """Draws three of its numbers when it is made, each from another generator."""

    def __init__(self) -> None:
        self.w = np.random.rand(5, 5)
        self.angle = np.random.default_rng().random()
        self.bias = torch.randn(3)
        self.rng = np.random.default_rng()

    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, self.w.sum() + self.angle + float(self.bias.sum()))


def drawn_in_a_constructor() -> Any:
    return Cases(), Drawn()


class Rare:
    """Reads a number that it has drawn in no batch that is compared."""

    def __init__(self) -> None:
        self.rare = random.random()

    def __call__(self, **batch: Any) -> Batch:
        return _plus(batch, self.rare) if detaug.current().step > 1000 else batch


def drawn_and_rarely_used() -> Any:
    return Loader(), Rare()


class Counted:
    """Seeds what it draws; numbers its objects; fills a cache."""

    objects = 0

    def __init__(self) -> None:
        type(self).objects += 1
        self.number = type(self).objects
        self.w = np.random.default_rng(5).random(3)
        self.names = frozenset(f"case {number}" for number in range(20))
        self.started = time.time()
        self.cache: dict[int, float] = {}

    def __call__(self, **batch: Any) -> Batch:
        number = int(np.random.randint(9))
        if number not in self.cache:
            self.cache[number] = self.w[0] * number
        return _plus(batch, self.cache[number])


def harmless() -> Any:
    """Sound, though it looks otherwise; with a bug that detaug mends."""
    return Loader(), Compose([HarmlessHabits(), UnseededInItsConstructor(), Counted()])


def default_rng() -> Any:
    return faulty("DefaultRng")


def no_pair() -> Any:
    return Loader()


def fails() -> Any:
    return Loader(), Compose([Noise(), _broken])


def _broken(**batch: Any) -> Batch:
    raise ValueError("this transform cannot be used")


def line_of(name: str) -> int:
    """The number of the line of that class that is marked as the fault."""
    lines = Path(__file__).read_text().splitlines()
    first = next(
        number
        for number, line in enumerate(lines)
        if line.startswith((f"class {name}:", f"class {name}("))
    )
    # the marked line may be in a function behind the class
    return next(
        number + 1 for number in range(first, len(lines)) if lines[number].endswith("# FAULT")
    )
