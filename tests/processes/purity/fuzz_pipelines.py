"""Random pipelines around one cell: an integer gives a `Spec`, and a spec an augmenter."""

from __future__ import annotations

import functools
import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from detaug import DeterministicAugmenter, LocalProcesses
from tests.processes.purity.fuzz_cells import CELLS, SIZES

ITEMS = 11
BATCH = 2
STEPS = 6
EPOCHS = ((0, 1, 2), (0, 2), (2, 0), (1,))
START_METHODS = ("fork", "spawn", "forkserver")


@dataclass(frozen=True)
class Spec:
    """A pipeline and how it is run, all of it drawn from `seed`."""

    seed: int
    state: str
    correct: bool
    size: int
    container: str
    form: str
    place: str
    epochs: tuple[int, ...]
    start_method: str
    num_processes: int

    @classmethod
    def of(cls, seed: int, start_methods: tuple[str, ...] = START_METHODS) -> Spec:
        draw = random.Random(seed)
        return cls(
            seed=seed,
            state=draw.choice(list(CELLS)),
            correct=draw.random() < 0.5,
            size=draw.choice(SIZES),
            container=draw.choice(list(CONTAINERS)),
            form=draw.choice(list(FORMS)),
            place=draw.choice(list(PLACES)),
            epochs=draw.choice(EPOCHS),
            start_method=draw.choice(start_methods),
            num_processes=draw.choice((0, 1, 2, 3)),
        )


# --- where the cell is held ---------------------------------------------------------------------------------------------


class Holder:
    """Holds the cell as people hold things."""

    def __init__(self, container: str, cell: Any) -> None:
        self.container = container
        self.held = CONTAINERS[container](cell)

    def draw(self) -> float:
        return float(sum(found() for found in _cells(self.held)))

    def run(self, data: Any) -> Any:
        return data + self.draw()

    __call__ = run


class Deep:
    """An object inside others."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __call__(self) -> float:
        return float(self.inner())


class Compose:
    """As torchvision, MONAI and nnU-Net compose."""

    def __init__(self, transforms: list[Any]) -> None:
        self.transforms = transforms

    def __call__(self) -> float:
        return float(sum(transform() for transform in self.transforms))


def _nothing() -> float:
    return 0.0


def _behind_annotations(cell: Any) -> Any:
    return {"annotations": [{"id": number, "box": [number, 2, 3]} for number in range(900)], "last": [Deep(Deep(cell))]}


CONTAINERS: dict[str, Callable[[Any], Any]] = {
    "attribute": lambda cell: cell,
    "list": lambda cell: [cell],
    "dict": lambda cell: {"a": {"b": cell}},
    "tuple": lambda cell: (0, (cell,)),
    "behind 900 dicts": _behind_annotations,
    "composition": lambda cell: Compose([_nothing, Compose([cell])]),
}


def _cells(held: Any) -> Iterator[Callable[[], float]]:
    if callable(held):
        yield held
    elif isinstance(held, dict):
        for value in held.values():
            yield from _cells(value)
    elif isinstance(held, (list, tuple)):
        for value in held:
            yield from _cells(value)


# --- in which form it is handed over --------------------------------------------------------------------------------------


def _apply(data: Any, holder: Holder) -> Any:
    return holder.run(data)


def _closure(holder: Holder) -> Callable[[Any], Any]:
    def transform(data: Any) -> Any:
        return holder.run(data)

    return transform


FORMS: dict[str, Callable[[Holder], Callable[[Any], Any]]] = {
    "object": lambda holder: holder,
    "bound method": lambda holder: holder.run,
    "partial": lambda holder: functools.partial(_apply, holder=holder),
    "closure": _closure,
    "lambda": lambda holder: lambda data: holder.run(data),
}


# --- where in the pipeline it works ---------------------------------------------------------------------------------------


class Items:
    """A map-style data set."""

    def __init__(self, step: Callable[[Any], Any] | None) -> None:
        self.step = step

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> dict[str, Any]:
        data = np.full(3, 1000.0 * index)
        return {"data": data if self.step is None else self.step(data), "index": index}


class OfBatches:
    """Applies a step to the data of a batch."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step = step

    def __call__(self, data: Any, **others: Any) -> dict[str, Any]:
        return {"data": self.step(np.asarray(data)), **others}


class Finite:
    """A loader with an end."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step = step
        self.position = 0

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Finite:
        self.position = 0
        return self

    def __next__(self) -> dict[str, Any]:
        if self.position >= STEPS:
            raise StopIteration
        self.position += 1
        return {"data": self.step(np.full(3, 1000.0 * self.position))}


class Endless:
    """A loader without."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step = step
        self.numbers = itertools.count()

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": self.step(np.full(3, float(np.random.randint(1000))))}


def _stack(samples: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: np.stack([np.asarray(sample[key]) for sample in samples]) for key in samples[0]}


def _as_transform(step: Any, **options: Any) -> DeterministicAugmenter:
    return DeterministicAugmenter.from_dataset(
        Items(None), BATCH, collate_fn=_stack, transform=OfBatches(step), **options
    )


def _in_a_data_set(step: Any, **options: Any) -> DeterministicAugmenter:
    return DeterministicAugmenter.from_dataset(Items(step), BATCH, collate_fn=_stack, **options)


def _in_a_finite_loader(step: Any, num_processes: int, **options: Any) -> DeterministicAugmenter:
    return DeterministicAugmenter(Finite(step), None, num_processes, num_streams=1, **options)


def _in_an_endless_loader(step: Any, num_processes: int, **options: Any) -> DeterministicAugmenter:
    settings = {"num_streams": 2, "batches_per_epoch": STEPS, **options}
    return DeterministicAugmenter(Endless(step), None, num_processes, **settings)


PLACES: dict[str, Callable[..., DeterministicAugmenter]] = {
    "transform": _as_transform,
    "data set": _in_a_data_set,
    "finite loader": _in_a_finite_loader,
    "endless loader": _in_an_endless_loader,
}


def augmenter(spec: Spec, num_processes: int | None = None) -> DeterministicAugmenter:
    """What the spec describes, checking every batch where detaug can."""
    step = FORMS[spec.form](Holder(spec.container, CELLS[spec.state](spec.correct, spec.size)))
    options: dict[str, Any] = {
        "num_processes": spec.num_processes if num_processes is None else num_processes,
        "seed": spec.seed,
        "check": 1,
    }
    if options["num_processes"]:
        options["executor"] = LocalProcesses(spec.start_method)
    return PLACES[spec.place](step, **options)
