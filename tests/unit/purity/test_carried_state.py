"""A warning names the state of a transform that would have changed the next batch.

Every batch starts from the same state, so the change is lost.
"""

from __future__ import annotations

import itertools
import logging
import math
import os
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch
from batchgenerators.dataloading.data_loader import DataLoader
from batchgeneratorsv2.transforms.nnunet.random_binary_operator import (
    ApplyRandomBinaryOperatorTransform,
)

from detaug.pipeline import carried_state
from detaug.pipeline.producer import Pipeline, Producer
from detaug.pipeline.sources import Source, resolve_source
from detaug.seeding.current import SeedBranch
from detaug.seeding.tree import SeedTree


class Volumes(DataLoader):
    """A stateless loader of random volumes with the numbers of their cases."""

    def __init__(self) -> None:
        super().__init__(list(range(40)), 2, infinite=True)
        self.indices = list(range(40))

    def generate_train_batch(self) -> dict[str, Any]:
        return {"x": np.random.random((2, 3)), "case": np.array(self.get_indices())}


@pytest.fixture(autouse=True)
def no_lack_of_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have as many batches compared on a busy machine as on an idle one."""
    monkeypatch.setattr(carried_state, "_ALLOWANCE", 60.0)


def source_of(loader: Any) -> Source:
    return resolve_source(loader, None, 50)


def warnings_of(
    transform: Any,
    loader: Any = None,
    num_batches: int = 12,
    keep: tuple[str, ...] = (),
    ignore: tuple[str, ...] = (),
) -> list[str]:
    """Return the warnings while one process makes the first batches of a pipeline.

    Args:
        transform: of the pipeline.
        loader: of the pipeline; a `Volumes` by default.
        num_batches: number of batches that are made.
        keep: the augmenter's argument.
        ignore: the argument of `Check`.
    """
    warnings: list[str] = []

    def log(text: str, level: int = logging.WARNING) -> None:
        assert level == logging.WARNING
        warnings.append(text)

    source = source_of(Volumes() if loader is None else loader)
    pipeline = Pipeline(source, transform, must_pickle=False, keep=keep)
    branch = SeedBranch(SeedTree(4), source.default_num_streams)
    producer = Producer(pipeline.pristine, branch, log, checks_carried_state=True, ignore=ignore)
    for step in range(num_batches):
        producer.make(0, step)
    return warnings


class Curriculum:
    """A transform whose author expects that it becomes stronger with every batch."""

    strength = 2

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.strength += 3
        return {"x": x * self.strength, **others}


def test_the_message_names_the_attribute_its_values_and_what_to_do() -> None:
    (text,) = warnings_of(Curriculum())
    assert text == (
        "Curriculum.strength was 2 when the batch began and 5 when it ended; every batch starts "
        "from 2, and would differ if the change carried over. To follow the training use "
        'set_epoch(epoch) or detaug.current().step; to let it carry over: keep=("strength",)'
    )


# --- transforms with a warning


class RunningMoments:
    def __init__(self) -> None:
        self.moments = {"mean": 0.0, "count": 0}

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.moments["count"] += 1
        self.moments["mean"] += (x.mean() - self.moments["mean"]) / self.moments["count"]
        return {"x": x - self.moments["mean"], **others}


class EveryEighth:
    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.calls += 1
        if self.calls % 8 == 0:
            x = -x
        return {"x": x, **others}


class InTurn:
    """A transform that uses its modes in turn."""

    def __init__(self) -> None:
        self.modes = ["wrap", "edge", "reflect"]

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.modes.append(self.modes.pop(0))
        return {"x": np.pad(x, 1, self.modes[-1]), **others}


class Momentum:
    """A transform that averages each batch with those before it."""

    def __init__(self) -> None:
        self.average: Any = None

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        if self.average is None:
            self.average = x
        else:
            self.average = 0.9 * self.average + 0.1 * x
        return {"x": self.average, **others}


class Normalises(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(3, dtype=torch.float64)

    def forward(self, x: Any, **others: Any) -> dict[str, Any]:
        self.norm.train()
        self.norm(torch.from_numpy(x))
        self.norm.eval()
        return {"x": self.norm(torch.from_numpy(x)).detach().numpy(), **others}


class Slotted:
    __slots__ = ("turn",)

    def __init__(self) -> None:
        self.turn = 0

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.turn = 1 - self.turn
        return {"x": x + self.turn, **others}


class WithMemory:
    """A transform that keeps its state in an object, which the first batch creates."""

    class Memory:
        """The state."""

        def __init__(self) -> None:
            self.count = 0

    memory: Any = None

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        if self.memory is None:
            self.memory = self.Memory()
        self.memory.count += 1
        return {"x": x * self.memory.count, **others}


class FadesIn:
    """A transform with a table that is too large to be pickled with it."""

    def __init__(self) -> None:
        self.table = np.zeros(30_000)

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.table += 0.5
        return {"x": x * self.table[-1], **others}


class EveryFifth:
    """Doubles every fifth batch, by a counter of Python's."""

    def __init__(self) -> None:
        self.numbers = itertools.count(1)

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        return {"x": x * (2 if next(self.numbers) % 5 == 0 else 1), **others}


class ListOfStrengths:
    """Takes the next strength from a list; the first four are the same."""

    def __init__(self) -> None:
        self.strengths = iter([1, 1, 1, 1, *range(2, 40)])

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        return {"x": x * next(self.strengths), **others}


def every_fifth_in_a_closure() -> Callable[..., Any]:
    numbers = itertools.count(1)

    def doubles(x: Any, **others: Any) -> dict[str, Any]:
        return {"x": x * (2 if next(numbers) % 5 == 0 else 1), **others}

    return doubles


def counting() -> Callable[..., Any]:
    count = 0

    def counts(x: Any, **others: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        return {"x": x + count, **others}

    return counts


class PerObject:
    """A descriptor that keeps a value for each object that has it."""

    def __init__(self) -> None:
        self.values: Any = WeakKeyDictionary()

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        return self if owner is None else self.values.get(owner, 0.0)

    def __set__(self, owner: Any, value: Any) -> None:
        self.values[owner] = value


class RunningMean:
    mean = PerObject()

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.mean = 0.9 * self.mean + 0.1 * x.mean()
        return {"x": x - self.mean, **others}


#: How often each object was called.
NUM_CALLS: Any = Counter()


class Ramp:
    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        NUM_CALLS[self] += 1
        return {"x": x * NUM_CALLS[self], **others}


class OnlyTogether:
    """A transform that changes a batch only if both of its counters have counted."""

    def __init__(self) -> None:
        self.first = 0
        self.second = 0

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        if self.first and self.second:
            x = x * 2
        self.first += 1
        self.second += 1
        return {"x": x, **others}


class Refuses:
    """A transform that fails at its second batch."""

    def __init__(self) -> None:
        self.is_used = False

    def __call__(self, **batch: Any) -> dict[str, Any]:
        if self.is_used:
            raise RuntimeError("make another one")
        self.is_used = True
        return batch


class Draws:
    """A transform that keeps what it drew in attributes, as MONAI's and TorchIO's do."""

    def __init__(self) -> None:
        self.factor = 1.0
        self.applies = False
        self.history: dict[str, Any] = {"last": None}
        self.rng = np.random.default_rng(1)

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.applies = np.random.random() < 0.5
        self.factor = self.rng.uniform(0.5, 2)
        self.history["last"] = self.factor
        if self.applies:
            x = x * self.history["last"]
        return {"x": x, **others}


class ReplacesItsGenerator:
    """A transform that replaces its generator by an equal one after every batch."""

    def __init__(self) -> None:
        self.state = [np.random.default_rng(1), 0]

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        rng, num_calls = self.state
        self.state = [np.random.default_rng(2), num_calls + 1]
        return {"x": x + rng.random(), **others}


class Chain:
    def __init__(self, *transforms: Any) -> None:
        self.transforms = list(transforms)

    def __call__(self, **batch: Any) -> Any:
        for transform in self.transforms:
            batch = transform(**batch)
        return batch


def one_of_many() -> Chain:
    return Chain(Draws(), Chain(Draws(), Curriculum()), Draws())


def beside_a_replaced_generator() -> Chain:
    return Chain(ReplacesItsGenerator(), Curriculum())


#: Name -> (transform, [beginning of the warning, attribute that it advises to keep, if any]).
WARNED: dict[str, tuple[Callable[[], Any], list[str]]] = {
    "running statistics": (
        RunningMoments,
        ["RunningMoments.moments['mean'] was 0.0 when", "moments"],
    ),
    "every eighth batch": (
        EveryEighth,
        ["EveryEighth.calls was 0 when the batch began and 7 after 7 batches;", "calls"],
    ),
    "a counter of Python's": (
        EveryFifth,
        ["EveryFifth.numbers was count(1) when the batch began and count(5)", "numbers"],
    ),
    "an iterator": (
        ListOfStrengths,
        ["ListOfStrengths.strengths was list_iterator with 42 items left when", "strengths"],
    ),
    "a counter of Python's in a closure": (
        every_fifth_in_a_closure,
        ["every_fifth_in_a_closure.<locals>.doubles.numbers was count(1) when", ""],
    ),
    "modes in turn": (InTurn, ["InTurn.modes[0] was 'wrap' when", "modes"]),
    "moving average": (Momentum, ["Momentum.average was None when", "average"]),
    "buffers of a network": (
        Normalises,
        ["BatchNorm1d._buffers['running_mean'] was Tensor (3,)", "_buffers"],
    ),
    "slots": (Slotted, ["Slotted.turn was 0 when the batch began and 1 when", "turn"]),
    "an object of its own": (
        WithMemory,
        ["WithMemory.memory was not set when the batch began and an object of type", "memory"],
    ),
    "a large array": (FadesIn, ["FadesIn.table was ndarray (30000,)", "table"]),
    "a closure": (counting, ["counting.<locals>.counts.count was 0 when", ""]),
    "two together": (OnlyTogether, ["OnlyTogether.first was 0 when", "first"]),
    "an error": (Refuses, ["Refuses.is_used was False when", "is_used"]),
    "one of many": (one_of_many, ["Curriculum.strength was 2 when", "strength"]),
    "beside a generator that is replaced": (
        beside_a_replaced_generator,
        ["Curriculum.strength was 2 when", "strength"],
    ),
}


@pytest.mark.parametrize("name", WARNED)
def test_state_that_would_have_changed_the_next_batch_is_told(name: str) -> None:
    make, (beginning, keep) = WARNED[name]
    first, *others = warnings_of(make())
    end = "current().step"
    if keep:
        end = f'; to let it carry over: keep=("{keep}",)'
    assert first.startswith(beginning)
    assert first.endswith(end)
    num_others = 1 if name == "two together" else 0
    assert len(others) == num_others


@pytest.mark.parametrize("make", [RunningMean, Ramp])
def test_state_that_is_kept_elsewhere_by_the_object_is_told_too(make: Callable[[], Any]) -> None:
    (text,) = warnings_of(make())
    assert text.startswith("the transforms carry something from batch to batch that no attribute")


# --- transforms without a warning


class Caches:
    """A transform that keeps results and counts calls, without an effect on batches."""

    def __init__(self) -> None:
        self.calls = 0
        self.seen: list[float] = []
        self.known: dict[int, float] = {}
        self.by_shape: Any = defaultdict(list)
        self.table: Any = None
        self.root = cache(math.sqrt)

    def __call__(self, x: Any, case: Any) -> dict[str, Any]:
        self.calls += 1
        self.seen.append(float(x.mean()))
        if self.table is None:
            self.table = np.arange(1000.0)
        self.by_shape[x.shape].append(self.calls)
        factors = []
        for number in case.tolist():
            factors.append(self.known.setdefault(number, self.root(number)))
        scaled = x * np.array(factors)[:, None]
        return {"x": scaled + self.table[3], "case": case}


class ComputedOnce:
    """A descriptor that keeps a result for each object that has it."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        self.function = function
        self.results: Any = WeakKeyDictionary()

    def __get__(self, owner: Any, kind: Any = None) -> Any:
        if owner is None:
            return self
        if owner not in self.results:
            self.results[owner] = self.function(owner)
        return self.results[owner]


class Windows:
    @ComputedOnce
    def window(self) -> Any:
        return np.hanning(3)

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        return {"x": x * self.window, **others}


class MakesItsGenerator:
    rng: Any = None

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        if self.rng is None:
            self.rng = {"inner": random.Random(int(np.random.randint(2**31)))}
        return {"x": x + self.rng["inner"].random(), **others}


class IsNotReproducible:
    """A transform with unseeded draws, which the run-time check reports instead."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        self.calls += 1
        number = int.from_bytes(os.urandom(3), "little")
        return {"x": x + number * self.calls, **others}


def binary_operator() -> Any:
    operator = ApplyRandomBinaryOperatorTransform([1, 2, 3], strel_size=(1, 3))

    def apply(x: Any, **others: Any) -> dict[str, Any]:
        masks = torch.from_numpy(np.random.random((4, 8, 8))) > 0.5
        return {"x": operator(image=masks.float())["image"], **others}

    return apply


def two_that_draw() -> Chain:
    return Chain(Draws(), Draws())


def keeping_nothing() -> Any:
    return dict


CORRECT: dict[str, Callable[[], Any]] = {
    "draws": two_that_draw,
    "caches": Caches,
    "results by object": Windows,
    "makes its generator": MakesItsGenerator,
    "replaces its generator": ReplacesItsGenerator,
    "shuffles its channels": binary_operator,
    "is not reproducible": IsNotReproducible,
    "keeps nothing": keeping_nothing,
}


@pytest.mark.parametrize("name", CORRECT)
def test_what_changes_no_batch_is_not_told(name: str) -> None:
    assert warnings_of(CORRECT[name](), num_batches=40) == []


def test_what_the_user_keeps_or_does_not_compare_is_not_told() -> None:
    assert warnings_of(Curriculum(), keep=("strength",)) == []
    assert warnings_of(Curriculum(), ignore=("x",)) == []


class FollowsTheEpoch:
    strength = 0

    def set_epoch(self, epoch: int) -> None:
        self.strength = 10 * epoch

    def __call__(self, x: Any, **others: Any) -> dict[str, Any]:
        return {"x": x + self.strength, **others}


def test_what_set_epoch_changes_is_not_carried() -> None:
    warnings: list[str] = []
    pipeline = Pipeline(source_of(Volumes()), FollowsTheEpoch(), must_pickle=False)
    branch = SeedBranch(SeedTree(4), 1)
    producer = Producer(pipeline.pristine, branch, warnings.append, checks_carried_state=True)  # type: ignore[arg-type]
    for epoch in range(3):
        for step in range(2):
            assert producer.make(epoch, step)["x"].min() >= 10 * epoch
    assert warnings == []


# --- transforms inside a loader, and other loaders


class WithTransforms(Volumes):
    """A loader that applies `transforms` itself, as nnU-Net's does."""

    def __init__(self, transforms: Any, infinite: bool = True) -> None:
        DataLoader.__init__(self, list(range(40)), 2, infinite=infinite)
        self.indices = list(range(40))
        self.transforms = transforms

    def generate_train_batch(self) -> dict[str, Any]:
        return self.transforms(**super().generate_train_batch())  # type: ignore[no-any-return]


class Endless:
    """A stateful loader, each of whose streams must be read in order."""

    number = 0

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> dict[str, Any]:
        self.number += 1
        return {"x": np.full((2, 3), self.number) + np.random.random(), "case": np.arange(2)}


@pytest.mark.parametrize("infinite", [True, False])
def test_transforms_inside_a_loader_are_looked_at_as_well(infinite: bool) -> None:
    (text,) = warnings_of(None, WithTransforms(Curriculum(), infinite))
    assert text.startswith("Curriculum.strength was 2 when")
    assert warnings_of(None, WithTransforms(Chain(Draws(), Caches()), infinite)) == []


def test_a_loader_that_keeps_its_place_is_not_stepped_for_it() -> None:
    (text,) = warnings_of(Curriculum(), Endless())
    assert "Curriculum.strength" in text
    source = source_of(Endless())
    pipeline = Pipeline(source, Draws(), must_pickle=False)
    branch = SeedBranch(SeedTree(4), 1)
    producer = Producer(pipeline.pristine, branch, ignore_warning, checks_carried_state=True)
    numbers: list[int] = []

    def record_number(raw: Any) -> None:
        numbers.append(int(raw["x"][0, 0]))

    for step in range(5):
        producer.make(0, step, on_raw_batch=record_number)
    assert numbers == [1, 2, 3, 4, 5]


def ignore_warning(text: str, level: int = logging.WARNING) -> None:
    """Do nothing."""


#: One item per call of a `NotesItsCalls`, in whichever copy.
CALLS = []


class NotesItsCalls(Draws):
    """A transform that notes each of its calls."""

    def __call__(self, **batch: Any) -> Any:
        CALLS.append(1)
        return super().__call__(**batch)


def test_it_costs_two_batches_where_nothing_is_carried() -> None:
    CALLS.clear()
    warnings_of(NotesItsCalls(), num_batches=40)
    assert len(CALLS) == 42
