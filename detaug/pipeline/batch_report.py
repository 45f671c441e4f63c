"""Fingerprints of a batch, with which another making is compared, and where the two diverge."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.objects.differences import differences
from detaug.objects.fingerprints import lenient_fingerprint
from detaug.objects.values import ValuePath, values_in
from detaug.objects.variables import variables_of
from detaug.system.interception import is_standard_library, listening

#: A pipeline's state has to fit into a message, as do the fingerprints of a batch.
_MOST_CHARACTERS = 30_000
_MOST_KEYS = 300
#: Modules whose calls are parts of a transform's, as those of the standard library are.
_NO_STAGES = (
    "torch.",
    "numpy",
    "functools",
    "detaug.pipeline.calling",
    "detaug.pipeline.producer",
    "detaug.pipeline.streams",
)
#: Methods whose return values are stages.
_STAGE_METHODS = ("__call__", "generate_train_batch", "__getitem__", "__next__")
_OF_PROCESS = " about the process"
_INTEGERS = (torch.int16, torch.int32, torch.int64)
#: Set by detaug, another value for each stream: a difference in it means nothing.
_SET_BY_DETAUG = ("data_loader.thread_id",)


@dataclass(frozen=True)
class BatchReport:
    """Fingerprints of a batch by key, as the loader gave it and as it is delivered.

    Attributes:
        raw: the fingerprints of the raw batch.
        final: those of the batch as it is delivered.
        random: see `random_keys`.
        raw_random: the same of the raw batch.
        new_generators: see `detaug.pipeline.copying.generators.new_generators`.
    """

    raw: dict[str, str]
    final: dict[str, str]
    random: tuple[str, ...] = ()
    raw_random: tuple[str, ...] = ()
    new_generators: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class TraceResponse:
    """The trace of a batch: the result of each stage, and the state that it was made from.

    Attributes:
        stages: (class, fingerprint of its result) of each transform, in order.
        state: the values of the loader, classes and modules, by path, as texts.
    """

    stages: list[tuple[str, str]] = field(default_factory=list)
    state: dict[str, str] = field(default_factory=dict)


class Change(NamedTuple):
    """A value of a loader, a class or a module that differs between two makings of a batch.

    Attributes:
        path: where it is.
        live: what it was in the process that made the batch.
        fresh: what it was for a pristine copy.
    """

    path: str
    live: str
    fresh: str


def batch_fingerprints(batch: Any) -> dict[str, str]:
    """Return a fingerprint for each key of a mapping, or for the whole of anything else.

    A value that holds the number of the process that made it is marked (see `differing_keys`).
    """
    fingerprints = {}
    for key, value in _items_of(batch):
        mark = _OF_PROCESS if _holds_process_number(value) else ""
        fingerprints[str(key)[:60]] = lenient_fingerprint(value) + mark
    return fingerprints


def differing_keys(
    one: Mapping[str, str], other: Mapping[str, str], ignore: Collection[str]
) -> list[str]:
    """Return the keys in which two makings of a batch differ, by their fingerprints.

    A value that holds, in both makings, the number of the process that made it is about that
    process, and no result of the pipeline's. In one making alone it is a number like any other.
    """
    keys = []
    for key, value, other_value in differences(one, other, ignore, _without_mark):
        is_of_process = value.endswith(_OF_PROCESS) and other_value.endswith(_OF_PROCESS)
        if not is_of_process:
            keys.append(key)
    return keys


def _without_mark(fingerprint: str) -> str:
    return fingerprint.removesuffix(_OF_PROCESS)


def random_keys(batch: Any) -> tuple[str, ...]:
    """Return the keys with floating-point numbers that are not all the same."""
    return tuple(str(key)[:60] for key, value in _items_of(batch) if _has_two_values(value))


def _items_of(batch: Any) -> Any:
    if isinstance(batch, Mapping) and len(batch) <= _MOST_KEYS:
        return batch.items()
    return [("batch", batch)]


def _holds_process_number(value: Any, depth: int = 2) -> bool:
    if isinstance(value, (dict, list, tuple)) and len(value) <= 64 and depth:
        parts = value.values() if isinstance(value, dict) else value
        return any(_holds_process_number(part, depth - 1) for part in parts)
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return _is_process_number_throughout(value)
    return isinstance(value, (int, np.integer)) and int(value) == os.getpid()


def _is_process_number_throughout(array: np.ndarray | torch.Tensor) -> bool:
    """Return whether an array holds a few integers that are all the number of this process."""
    if isinstance(array, torch.Tensor):
        if array.device.type != "cpu" or array.layout != torch.strided:
            return False
        if array.dtype not in _INTEGERS:
            return False
        array = array.detach().resolve_neg().numpy()
    if array.dtype.kind not in "iu" or not 0 < array.size <= 64:
        return False
    return bool((array == os.getpid()).all())


def _has_two_values(value: Any) -> bool:
    """Return whether an array holds floating-point numbers that are not all the same."""
    # A sparse tensor or a subclass may refuse to be compared: a report makes no batch fail.
    with suppress(Exception):
        # Without the subclass: to compare two of its numbers may take it as long as all the rest of
        # the batch.
        if isinstance(value, torch.Tensor):
            flat: Any = value.as_subclass(torch.Tensor).reshape(-1)
            is_float = flat.dtype.is_floating_point and flat.device.type == "cpu"
        elif isinstance(value, np.ndarray):
            flat = np.asarray(value).reshape(-1)
            is_float = flat.dtype.kind == "f"
        else:
            return False
        if not is_float or len(flat) < 2:
            return False
        return bool((flat != flat[0]).any())
    return False


def explain(
    make: Callable[[], Any], objects: Mapping[str, Any], references: list[Any]
) -> TraceResponse:
    """Make a batch, and return what each transform returned and the state it was made from.

    Args:
        make: makes the batch.
        objects: as those of `state_of`.
        references: as those of `state_of`.
    """
    response = TraceResponse(state=state_of(objects, references))

    def add_stage(name: str, result: Any) -> None:
        response.stages.append((name[:60], lenient_fingerprint(result)))

    with observe_stages(add_stage):
        try:
            make()
        except Exception as error:
            response.stages.append((type(error).__name__, str(error)[:1000]))
    return response


@contextmanager
def observe_stages(callback: Callable[[str, Any], None]) -> Iterator[None]:
    """Report the transforms, loaders and data sets that return something in this thread.

    Args:
        callback: called with the object's class, by name, and the value that it returns.
    """
    num_stages = 0

    def listen(frame: types.FrameType, event: str, result: Any) -> None:
        nonlocal num_stages
        code = frame.f_code
        if event != "return" or code.co_name not in _STAGE_METHODS:
            return
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if owner is None or is_standard_library(frame):
            return
        module = str(frame.f_globals.get("__name__"))
        if module.startswith(_NO_STAGES) or num_stages == _MOST_KEYS:
            return
        num_stages += 1
        # The callback's own calls are no stages.
        sys.setprofile(None)
        try:
            callback(type(owner).__qualname__, result)
        finally:
            sys.setprofile(listen)

    with listening(listen):
        yield


def state_of(objects: Mapping[str, Any], references: list[Any]) -> dict[str, str]:
    """Return the small values that a pipeline's objects and its code's variables hold, by path.

    Args:
        objects: the pipeline's parts, by the names that paths begin with.
        references: its classes and functions; variables of these classes, and of the modules
            that define them, are looked at as well.
    """
    part_ids = {id(value) for value in objects.values()}

    def is_the_pipelines(_path: ValuePath, value: Any) -> bool:
        return id(value) in part_ids or not type(value).__module__.startswith("detaug.")

    state: dict[str, str] = {}
    room = _MOST_CHARACTERS
    roots = [*objects.items(), *variables_of(references)]
    # Breadth first (`walk`), so that what is left out lies deepest.
    for path, value in values_in(roots, is_the_pipelines):
        state[path] = value.text
        room -= len(path) + len(value.text)
        if room <= 0:
            break
    return state


def first_divergence(live: TraceResponse, fresh: TraceResponse) -> tuple[str, list[Change]]:
    """Return the first transform whose result differs between two makings, and the changed values.

    Args:
        live: the making in the process that delivered the batch.
        fresh: the making by a pristine copy.
    """
    stage = ""
    # Only the first difference: after it the two may go through different stages.
    for output, other_output in zip(live.stages, fresh.stages, strict=False):
        if output != other_output:
            stage = " or ".join(dict.fromkeys((output[0], other_output[0])))
            break
    changed = differences(live.state, fresh.state, _SET_BY_DETAUG)
    return stage, [Change(*change) for change in changed]
