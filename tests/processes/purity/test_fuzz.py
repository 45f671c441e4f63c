"""Random pipelines around something that carries state never give other batches silently."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from detaug import DeterministicAugmenter, LocalProcesses
from tests.processes.purity.test_seen_state import COPIED, Inner
from tests.processes.purity.ways import Make, check_every, run_all_ways

ITEMS, STEPS = 11, 6
#: Of every kind of pipeline. More, and others in every run: ``DETAUG_TEST_EXAMPLES=400`` takes
#: about an hour.
MORE = int(os.environ.get("DETAUG_TEST_EXAMPLES", "0"))
pytestmark = [pytest.mark.timeout(0)] if MORE else []


def some(examples: int) -> settings:
    return settings(max_examples=MORE or examples, derandomize=not MORE, deadline=None)


#: What carries state, as a transform.
CELLS: dict[str, Callable[[], Any]] = {
    **COPIED,
    "generator": lambda: functools.partial(_adds, np.random.default_rng(5).random),
    "global numbers": lambda: functools.partial(_adds, np.random.random),
    "class attribute": lambda: functools.partial(_adds, _counted),
}


def _adds(draw: Callable[[], float], data: Any) -> dict[str, Any]:
    return {"data": data + draw()}


def _counted() -> float:
    Inner.count += 1
    return float(Inner.count)


class Holder:
    """Holds the cell as people hold things."""

    def __init__(self, held: Any, find: Callable[[Any], Any]) -> None:
        self.held, self.find = held, find

    def run(self, data: Any) -> Any:
        return self.find(self.held)(data=data)["data"]

    __call__ = run


def _itself(cell: Any) -> Any:
    return cell


def _in_a_list(cell: Any) -> Any:
    return [cell]


def _in_a_dict(cell: Any) -> Any:
    return {"a": {"b": cell}}


def _in_a_tuple(cell: Any) -> Any:
    return (0, (cell,))


def _behind_annotations(cell: Any) -> Any:
    return {
        "annotations": [{"id": number, "box": [number, 2, 3]} for number in range(900)],
        "last": [cell],
    }


class Behind:
    """Finds what lies behind these keys, one in the other."""

    def __init__(self, *keys: Any) -> None:
        self.keys = keys

    def __call__(self, held: Any) -> Any:
        for key in self.keys:
            held = held[key]
        return held


def _in_an_object(cell: Any) -> Any:
    return Holder([cell], Behind(0))


def _of_an_object(holder: Holder) -> Any:
    return holder.find(holder.held)


CONTAINERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "attribute": (_itself, _itself),
    "list": (_in_a_list, Behind(0)),
    "dict": (_in_a_dict, Behind("a", "b")),
    "tuple": (_in_a_tuple, Behind(1, 0)),
    "behind 900 dicts": (_behind_annotations, Behind("last", 0)),
    "object in an object": (_in_an_object, _of_an_object),
}


def _apply(data: Any, holder: Holder) -> Any:
    return holder.run(data)


def _as_partial(holder: Holder) -> Callable[[Any], Any]:
    return functools.partial(_apply, holder=holder)


def _as_closure(holder: Holder) -> Callable[[Any], Any]:
    def run(data: Any) -> Any:
        return holder.run(data)

    return run


FORMS: dict[str, Callable[[Holder], Callable[[Any], Any]]] = {
    "object": _itself,
    "bound method": attrgetter("run"),
    "partial": _as_partial,
    "closure": _as_closure,
}


class Items:
    """A map-style data set."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step = step

    def __len__(self) -> int:
        return ITEMS

    def __getitem__(self, index: int) -> Any:
        return self.step(np.full(3, 1000.0 * index))


class Finite:
    """A loader with an end."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step, self.position = step, 0

    def __len__(self) -> int:
        return STEPS

    def __iter__(self) -> Finite:
        self.position = 0
        return self

    def __next__(self) -> Any:
        if self.position >= STEPS:
            raise StopIteration
        self.position += 1
        return self.step(np.full(3, 1000.0 * self.position))


class Endless:
    """A loader without."""

    def __init__(self, step: Callable[[Any], Any]) -> None:
        self.step = step

    def __iter__(self) -> Endless:
        return self

    def __next__(self) -> Any:
        return self.step(np.full(3, float(np.random.randint(1000))))


def _data_set(data: Any, **options: Any) -> Make:
    return functools.partial(
        DeterministicAugmenter.from_dataset, data, 2, collate_fn=np.stack, **options
    )


PLACES: dict[str, Callable[[Any], Make]] = {
    "transform": lambda step: _data_set(Items(lambda data: data), transform=step),
    "data set": lambda step: _data_set(Items(step)),
    "finite loader": lambda step: functools.partial(
        DeterministicAugmenter, Finite(step), None, num_streams=1
    ),
    "endless loader": lambda step: functools.partial(
        DeterministicAugmenter, Endless(step), None, num_streams=2, batches_per_epoch=STEPS
    ),
}


def _can_travel(value: Any) -> bool:
    """To another interpreter: an open file cannot, nor what passes on the question for its own
    attributes.
    """
    try:
        cloudpickle.loads(cloudpickle.dumps(value))
    except Exception:
        return False
    return True


@st.composite
def pipelines(draw: st.DrawFn, start_methods: tuple[str, ...]) -> tuple[Make, bool]:
    """Makes augmenters; and whether detaug itself makes them right, by copies for every batch."""
    cell, place = draw(st.sampled_from(sorted(CELLS))), draw(st.sampled_from(sorted(PLACES)))
    pack, find = CONTAINERS[draw(st.sampled_from(sorted(CONTAINERS)))]
    holder = Holder(pack(CELLS[cell]()), find)
    make = PLACES[place](FORMS[draw(st.sampled_from(sorted(FORMS)))](holder))
    method = draw(st.sampled_from(start_methods))

    def with_processes(num_processes: int) -> DeterministicAugmenter:
        executor = LocalProcesses(method) if num_processes else None
        return make(
            num_processes=num_processes, executor=executor, seed=3, check=check_every(num_processes)
        )

    is_copied = cell != "class attribute" and (method == "fork" or _can_travel(holder))
    return with_processes, place == "transform" and is_copied


def examine(pipeline: tuple[Make, bool], processes: tuple[int, ...]) -> None:
    make, right = pipeline
    found = run_all_ways(make, processes)
    if right:
        found.assert_right(carries_state=True)
    else:
        found.assert_same_or_said()


@given(pipelines(("fork",)))
@some(12)
def test_pipelines_in_one_process(pipeline: tuple[Make, bool]) -> None:
    examine(pipeline, (0,))


@given(pipelines(("fork",)))
@some(3)
def test_pipelines_with_forked_workers(pipeline: tuple[Make, bool]) -> None:
    examine(pipeline, (0, 2))


@pytest.mark.slow
@given(pipelines(("spawn", "forkserver")))
@some(10)
def test_pipelines_in_new_interpreters(pipeline: tuple[Make, bool]) -> None:
    examine(pipeline, (0, 2))
