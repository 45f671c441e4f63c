"""Whatever carries state from batch to batch, in whatever it is kept: the same bytes, or a word."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from functools import lru_cache, partial
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import DataLoader

from detaug.errors import ReproducibilityError
from tests.processes.purity.ways import OneOf, Then, making, run_all_ways, with_workers


class Noise(DataLoader):
    """Stateless: every batch is drawn anew."""

    def __init__(self) -> None:
        super().__init__(list(range(23)), 3, infinite=True)
        self.indices = list(range(23))

    def generate_train_batch(self) -> dict[str, Any]:
        return {"data": np.random.random((3, 2)), "index": np.array(self.get_indices())}


class Endless:
    """Keeps nothing, and does not say so."""

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.random.random((3, 2))}


# --- transforms
# ---------------------------------------------------------------------------------------------------------


class Step:
    """Adds what `draw` gives, which depends on what was drawn before."""

    __slots__ = ()

    def draw(self) -> float:
        raise NotImplementedError

    def __call__(self, data: Any, **others: Any) -> dict[str, Any]:
        return {"data": data + self.draw(), **others}


class Slotted(Step):
    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def draw(self) -> float:
        self.count += 1
        return float(self.count)


class Remembers(Step):
    def __init__(self) -> None:
        self.known: dict[int, float] = {}

    def draw(self) -> float:
        key = random.randrange(600)
        return self.known.setdefault(key, key**0.5) + len(self.known)


class LoadsOnFirstUse(Step):
    def __init__(self) -> None:
        self.atlas: Any = None

    def draw(self) -> float:
        if self.atlas is None:
            self.atlas = np.random.random(600)
        return float(self.atlas[-1])


class Buffers(Step):
    """Arrays of so many elements, of which 20,000 are more than 64 kB."""

    def __init__(self, size: int) -> None:
        self.tensor, self.array = torch.zeros(size), np.arange(size)

    def draw(self) -> float:
        self.tensor += torch.rand(())
        np.random.shuffle(self.array)
        return float(self.tensor[0] + self.array[0])


class HoldsANetwork(Step):
    def __init__(self) -> None:
        self.norm = torch.nn.BatchNorm1d(1)

    def draw(self) -> float:
        self.norm(torch.rand(2, 1))
        return float(self.norm.running_mean)  # type: ignore[arg-type]


def closure() -> Any:
    count = 0

    def counts(data: Any, **others: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return {"data": data + count, **others}

    return counts


class Inner:
    count = 0


class InAnotherObject(Step):
    """Passes all its attributes on, as wrappers of data sets and environments do."""

    def __init__(self) -> None:
        self.__dict__["inner"] = Inner()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    def draw(self) -> float:
        self.count = self.count + 1
        return float(self.count)


class BesidesOddAttributes(Step):
    def __init__(self) -> None:
        self.calls = MappingProxyType({"all": [0]})
        self.out, self.sparse = sys.stderr, torch.eye(3).to_sparse()
        self.cached = lru_cache(maxsize=3)(lambda key: key + 1)

    def draw(self) -> float:
        assert self.out.writable()
        self.calls["all"][0] += self.cached(0)
        return float(self.calls["all"][0])


def in_a_default(data: Any, seen: list[int] = [], **others: Any) -> dict[str, Any]:  # noqa: B006
    seen.append(1)
    return {"data": data + len(seen), **others}


class InACache(Step):
    """``lru_cache`` of a method whose result depends on when it was first called."""

    def __init__(self) -> None:
        self.count = 0

    @lru_cache(maxsize=99)  # noqa: B019
    def remembered(self, key: int) -> float:
        return random.random() + key

    def draw(self) -> float:
        return self.remembered(random.randrange(3))


#: State that copies have to themselves; of what they share, test_checking.py has examples.
COPIED: dict[str, Callable[[], Any]] = {
    "__slots__": Slotted,
    "dict cache": Remembers,
    "None, then loaded": LoadsOnFirstUse,
    "small buffers": partial(Buffers, 600),
    "large buffers": partial(Buffers, 20_000),
    "nn.Module": HoldsANetwork,
    "closure": closure,
    "__getattr__": InAnotherObject,
    "odd attributes": BesidesOddAttributes,
    "default argument": lambda: in_a_default,
    "lru_cache of a method": InACache,
}


def test_a_transforms_state_starts_every_batch_as_it_was_handed_in() -> None:
    parts = [make() for make in COPIED.values()]
    before = [_state_of(part) for part in parts]
    transform = Then(OneOf(parts[0], Then(*parts[1:4])), OneOf(*parts[4:7]), Then(*parts[7:]))
    run_all_ways(making(Noise(), transform)).assert_right(carries_state=True)
    assert [_state_of(part) for part in parts] == before
    assert in_a_default.__defaults__ == ([],)


def _state_of(transform: Any) -> str:
    return "" if isinstance(transform, InAnotherObject) else str(getattr(transform, "__dict__", ""))


class MadeOnFirstUse(Step):
    def __init__(self, make: Callable[[], Any]) -> None:
        self.make, self.rng = make, None

    def draw(self) -> float:
        if self.rng is None:
            self.rng = {"inner": [self.make()]}
        rng = self.rng["inner"][0]
        return float(
            torch.rand((), generator=rng) if isinstance(rng, torch.Generator) else rng.random()
        )


def _seed_of_the_batch() -> int:
    return int(np.random.randint(2**31))


MADE: dict[str, Callable[[Callable[[], int]], Any]] = {
    "default_rng": lambda seed: np.random.default_rng(seed()),
    "RandomState": lambda seed: np.random.RandomState(seed()),
    "Random": lambda seed: random.Random(seed()),
    "torch": lambda seed: torch.Generator().manual_seed(seed()),
}


@pytest.mark.parametrize("kind", MADE)
def test_a_generator_made_with_one_seed_in_every_batch_is_told_of(kind: str) -> None:
    """Issue: the same number in every batch, and called equal."""
    processes = with_workers(kind, ["default_rng"])
    transform = Then(MadeOnFirstUse(lambda: MADE[kind](lambda: 6)))
    found = run_all_ways(making(Noise(), transform), processes, kill=False)
    assert found.different() == []
    for way in [f"{number} workers" for number in processes]:
        assert any(
            word.startswith(way) and "transforms[0].rng" in word and "same seed" in word
            for word in found.words
        )


def test_a_generator_made_from_the_batchs_numbers_is_right() -> None:
    made = [MadeOnFirstUse(lambda make=make: make(_seed_of_the_batch)) for make in MADE.values()]
    run_all_ways(making(Noise(), Then(*made)), kill=False).assert_right()


# --- loaders
# --------------------------------------------------------------------------------------------------------------


class ShufflesAList:
    """Issue: right with 1,000 items and wrong with 1,001."""

    def __init__(self, items: int) -> None:
        self.order: Any = list(range(items))

    def __iter__(self) -> ShufflesAList:
        return self

    def __next__(self) -> Any:
        random.shuffle(self.order)
        return np.array(self.order[:5])


class ShufflesAnArray(ShufflesAList):
    def __init__(self, items: int) -> None:
        self.order = np.arange(items)

    def __next__(self) -> Any:
        np.random.shuffle(self.order)
        return self.order[:5].copy()


class HandsOutWhatItShuffles(ShufflesAnArray):
    def __next__(self) -> Any:
        np.random.shuffle(self.order)
        return self.order[:5]


SHUFFLED = [
    (ShufflesAList, 1001),
    (ShufflesAnArray, 513),
    (HandsOutWhatItShuffles, 60_000),
]


@pytest.mark.parametrize(("kind", "items"), SHUFFLED)
@pytest.mark.parametrize("num_streams", [1, 3])
def test_a_loader_may_shuffle_in_place_whatever_its_size(
    kind: Any, items: int, num_streams: int
) -> None:
    loader = kind(items)
    in_workers = num_streams == 3 and items in (1001, 60_000)
    run_all_ways(
        making(loader, num_streams=num_streams), processes=(0, 2) if in_workers else (0,)
    ).assert_right()
    assert list(loader.order) == list(range(items))


class InAnInfiniteLoader(Noise):
    """Shuffles its indices in place, and counts as stateless by its class."""

    def __init__(self, items: int) -> None:
        super().__init__()
        self.cases = list(range(items))

    def generate_train_batch(self) -> dict[str, Any]:
        random.shuffle(self.cases)
        return {"data": np.array(self.cases[:3])}


def test_a_loader_taken_for_stateless_that_is_not_is_told_of() -> None:
    for num_processes in (0, 2):
        with (
            making(InAnInfiniteLoader(1003))(num_processes=num_processes) as augmenter,
            pytest.raises(ReproducibilityError, match="stateless=False"),
        ):
            list(augmenter)
    run_all_ways(
        making(InAnInfiniteLoader(1003), stateless=False), processes=(0, 2), kill=False
    ).assert_right()


class WithItsOwnTransforms(Noise):
    """As nnU-Net's loader: applies `transforms` to each sample."""

    def __init__(self, transforms: Any) -> None:
        super().__init__()
        self.transforms = transforms

    def generate_train_batch(self) -> dict[str, Any]:
        samples = []
        for _ in range(3):
            samples.append(self.transforms(data=np.random.random(2))["data"])
        return {"data": np.stack(samples)}


def test_transforms_inside_a_loader_start_every_batch_pristine() -> None:
    states = [COPIED[state]() for state in ("dict cache", "large buffers", "closure", "nn.Module")]
    found = run_all_ways(making(WithItsOwnTransforms(Then(*states))), kill=False)
    found.assert_right(carries_state=True)


# --- what transforms and loader have in common
# ----------------------------------------------------------------------------


class WritesMetadata(Endless):
    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    def __next__(self) -> dict[str, Any]:
        self.metadata["spacing"] = float(np.random.randint(50))
        return {"data": np.zeros(2)}


class ReadsMetadata:
    def __init__(self, metadata: dict[str, Any]) -> None:
        self.metadata = metadata

    def __call__(self, data: Any) -> dict[str, Any]:
        return {"data": data + self.metadata["spacing"]}


class StatelessMetadata(Noise):
    def __init__(self, metadata: dict[str, Any]) -> None:
        super().__init__()
        self.metadata = metadata

    def generate_train_batch(self) -> dict[str, Any]:
        self.metadata["spacing"] = float(np.random.randint(50))
        return {"data": np.zeros(2)}


@pytest.mark.parametrize("loader", [WritesMetadata, StatelessMetadata])
def test_a_transform_reads_what_the_loader_wrote_for_this_batch(loader: Any) -> None:
    metadata: dict[str, Any] = {}
    found = run_all_ways(
        making(loader(metadata), Then(Then(ReadsMetadata(metadata))), num_streams=2)
    )
    found.assert_right()
    assert len({float(batch["data"][0]) for batch in found.epoch("2 workers", 0)}) > 3
    assert metadata == {}
