"""Every generator that a pipeline owns is found, wherever it is, and keyed by its path."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.processes.purity.ways import Findings, Make, making_from, run_all_ways

ITEMS = 12
BATCH = 3


#: A function that draws a number, by the place of its generator.
Draws = dict[str, Callable[[], float]]


class Items:
    """A data set whose items are a number from every place."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> dict[str, float]:
        return {"index": index, **{place: float(draw()) for place, draw in self.draws.items()}}


def _plain(samples: list[Any]) -> list[Any]:
    return samples


def in_a_data_set(draws: Draws, transform: Any = None) -> Make:
    return making_from(Items(draws), BATCH, collate_fn=_plain, transform=transform)


class Adds:
    """A transform that adds a number from every place to each sample."""

    def __init__(self, draws: Draws) -> None:
        self.draws = draws

    def __call__(self, samples: list[Any]) -> list[Any]:
        return [
            {**sample, **{place: float(draw()) for place, draw in self.draws.items()}}
            for sample in samples
        ]


def as_transform(draws: Draws) -> Make:
    return in_a_data_set({}, Adds(draws))


def assert_every_number_is_drawn_once(found: Findings, place: str) -> None:
    """No worker, sample or batch repeats another one's number from this place."""
    for way in found.batches:
        if way not in ("resumed", "replayed"):
            numbers = [
                sample[place]
                for epoch in (0, 2)
                for batch in found.epoch(way, epoch)
                for sample in batch
            ]
            assert len(set(numbers)) == len(numbers) == 2 * ITEMS, place


# --- where they are
# -------------------------------------------------------------------------------------------------------


class Holder:
    def __init__(self, generator: Any) -> None:
        self.generator = generator

    def __call__(self) -> float:
        return float(self.generator.random())


class Behind900Dicts(Holder):
    def __init__(self, generator: Any) -> None:
        self.annotations = [
            {"id": number, "box": [number, {"area": number}]} for number in range(450)
        ]
        self.more = {number: {"name": str(number)} for number in range(450)}
        self.last = {"end": [({"generator": generator},)]}

    def __call__(self) -> float:
        return float(self.last["end"][0][0]["generator"].random())


class InAModule(torch.nn.Module):
    def __init__(self, generator: Any) -> None:
        super().__init__()
        self.inner = torch.nn.ModuleList([torch.nn.Linear(1, 1)])
        self.inner[0].generator = generator

    def forward(self) -> float:
        return float(self.inner[0].generator.random())


class WithCopyOfItsOwn(Holder):
    def __deepcopy__(self, memo: Any) -> Any:
        raise RuntimeError("not by deepcopy")

    def __getstate__(self) -> Any:
        return {"inside": [self.generator]}

    def __setstate__(self, state: Any) -> None:
        (self.generator,) = state["inside"]


class InADictOfLambdas:
    def __init__(self, generator: Any) -> None:
        self.draws = {"a": lambda: 0.0, "b": lambda: generator.random()}

    def __call__(self) -> float:
        return float(self.draws["b"]())


def closure(generator: Any) -> Callable[[], float]:
    def outer() -> Callable[[], float]:
        return lambda: float(generator.random())

    return outer()


def _draw(generator: Any, *, scale: float = 1.0) -> float:
    return float(generator.random()) * scale


class InAClass:
    generator = np.random.default_rng(3)

    def __call__(self) -> float:
        return float(self.generator.random())


GENERATOR = np.random.RandomState(4)


class InTheModule:
    def __call__(self) -> float:
        return float(GENERATOR.random_sample())


def _of_the_module() -> float:
    return float(GENERATOR.random_sample())


def _called_by_another(*, generator: Any = random.Random(3)) -> float:  # noqa: B008
    return generator.random()


def _calls_another() -> float:
    return _called_by_another()


def torch_generator() -> Callable[[], float]:
    generator = torch.Generator()
    return lambda: float(torch.rand((), generator=generator, dtype=torch.float64))


HELD: dict[str, Callable[[Any], Any]] = {
    "attribute": Holder,
    "behind 900 dicts": Behind900Dicts,
    "nn.Module": InAModule,
    "__getstate__": WithCopyOfItsOwn,
    "dict of lambdas": InADictOfLambdas,
    "closure": closure,
    "partial": lambda generator: partial(_draw, generator, scale=2.0),
    "bound method": lambda generator: Holder(generator).__call__,
}
NOWHERE: dict[str, Callable[[], Any]] = {
    "class": InAClass,
    "module": InTheModule,
    "module, from a function": lambda: _of_the_module,
    "default of a function that is called": lambda: _calls_another,
    "torch.Generator in a closure": torch_generator,
}
KINDS: list[Callable[[], Any]] = [
    lambda: np.random.default_rng(),
    partial(random.Random, 8),
    lambda: np.random.RandomState(8),
    lambda: np.random.Generator(np.random.Philox(8)),
]


@pytest.mark.parametrize("make", [in_a_data_set, as_transform])
def test_every_number_is_drawn_once_wherever_the_generator_is(make: Any) -> None:
    draws = {place: hold(KINDS[number % 4]()) for number, (place, hold) in enumerate(HELD.items())}
    draws.update({place: hold() for place, hold in NOWHERE.items()})
    found = run_all_ways(make(draws))
    found.assert_right()
    for place in draws:
        assert_every_number_is_drawn_once(found, place)


# --- by path
# --------------------------------------------------------------------------------------------------------------


def test_two_generators_at_two_places_draw_different_numbers() -> None:
    pair = [np.random.default_rng(5), np.random.default_rng(5)]
    draws = {"one": lambda: pair[0].random(), "other": lambda: pair[1].random()}
    found = run_all_ways(in_a_data_set(draws), processes=(0,), kill=False)
    samples = [sample for batch in found.epoch("0 workers", 0) for sample in batch]
    assert all(sample["one"] != sample["other"] for sample in samples)
