"""What one making of a batch was: fingerprints that another making is compared with, and where the two diverge."""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from detaug.fingerprints import dense, fingerprint
from detaug.purity.reducing import reduce_by_class
from detaug.purity.references import variables_of
from detaug.seeding.reseeders import reseeder_of
from detaug.walking import attributes_of, walk
from detaug.watching.interception import listening

#: How much of a pipeline's state is looked through to name what has changed.
_MOST_VALUES = 20_000
#: It has to fit into a message, as do the fingerprints of a batch.
_MOST_CHARACTERS = 30_000
_MOST_KEYS = 300
#: How many parts of what has no fingerprint are looked at, and how deep: an object counts for eight containers.
_MOST_PARTS, _DEEPEST = 4_000, 48
#: Where Python's, NumPy's and torch's generators are defined.
_GENERATORS = ("random", "numpy.random", "torch")
#: Modules whose calls are parts of a transform's.
_NO_STAGES = ("torch.", "numpy", "functools", "detaug.pipeline")
_NOT_COMPARABLE, _OF_PROCESS = "not comparable", "about the process"
_CONTAINERS = (dict, list, tuple, set, frozenset)
_PLAIN = (str, bytes, int, float, complex, bool, type(None), np.generic)
_SHARED = (type, types.FunctionType, types.BuiltinFunctionType)


@dataclass(frozen=True)
class BatchReport:
    """Fingerprints of a batch by key, as the loader gave it and as it is delivered.

    `random` and `raw_random`: see `random_keys`; `late`: see `detaug.purity.owned.made_late`.
    """

    raw: dict[str, str]
    final: dict[str, str]
    random: tuple[str, ...] = ()
    raw_random: tuple[str, ...] = ()
    late: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Explanation:
    """How a batch came to be: what each transform returned, (class, fingerprint), and what loader, classes and modules held, by
    path."""

    stages: list[tuple[str, str]] = field(default_factory=list)
    state: dict[str, str] = field(default_factory=dict)


def prints_of(batch: Any) -> dict[str, str]:
    """A fingerprint for each key of a mapping, or for the whole of anything else.

    What holds the number of the process that made it is about that process, and no result of the pipeline's.
    """
    items = _items_of(batch)
    return {
        str(key)[:60]: _OF_PROCESS if _holds_process_number(value) else _print_of(value)
        for key, value in items
    }


def random_keys(batch: Any) -> tuple[str, ...]:
    """Keys with floating-point numbers that are not all the same."""
    return tuple(str(key)[:60] for key, value in _items_of(batch) if _has_two_values(value))


def _items_of(batch: Any) -> Any:
    return (
        batch.items()
        if isinstance(batch, Mapping) and len(batch) <= _MOST_KEYS
        else [("batch", batch)]
    )


def _print_of(value: Any, room: Iterator[int] | None = None, depth: int = _DEEPEST) -> str:
    """A fingerprint; what has none is looked at part by part."""
    with suppress(Exception):  # no bytes that are the same everywhere
        return fingerprint(value)
    if isinstance(value, torch.Tensor):
        with suppress(Exception):  # on a device that holds none
            return fingerprint(["dense", dense(value)])
    # Objects may lead round in circles, and to each other many times over.
    room = iter(range(_MOST_PARTS)) if room is None else room
    parts = _parts_of(value) if depth > 0 else None
    if parts is None:
        return _NOT_COMPARABLE
    depth -= 1 if isinstance(value, _CONTAINERS) else 8
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return fingerprint(
        [
            kind,
            len(parts),
            [_print_of(part, room, depth) for part, _ in zip(parts, room, strict=False)],
        ]
    )


def _parts_of(value: Any) -> Sequence[Any] | None:
    """What a container or an object is made of, in an order that is the same everywhere; None: that cannot be said."""
    if isinstance(value, np.ndarray | np.generic):
        return _parts_of_array(np.asarray(value))
    if isinstance(value, torch.Tensor):  # without bytes
        return ()
    if isinstance(value, _SHARED):
        return [value.__module__, value.__qualname__]
    if not isinstance(value, _CONTAINERS):
        value = _state_of_object(value)
    if not isinstance(value, (dict, set, frozenset)):
        return value  # type: ignore[no-any-return]
    keys = list(value)
    with suppress(Exception):  # of different kinds
        keys.sort()
    return [(key, value[key]) for key in keys] if isinstance(value, dict) else keys


@np.errstate(invalid="ignore")  # infinities
def _parts_of_array(array: np.ndarray) -> Sequence[Any]:
    if array.dtype.names:
        return [array[name] for name in array.dtype.names]
    if array.dtype.kind not in "fc":
        return array.reshape(-1).tolist()
    # Long doubles, some of whose bytes may hold anything: what a float64 leaves of a mantissa is a float64.
    mantissas, exponents = np.frexp([array.real, array.imag])
    rounded = mantissas.astype(np.float64)
    return [rounded, (mantissas - rounded).astype(np.float64), exponents]


def _state_of_object(value: Any) -> Any:
    """What an object is made of again where it is copied or pickled; where that cannot be, its attributes. None: neither."""
    try:
        reduced = reduce_by_class(value, protocol=4)
        if isinstance(reduced, str):
            return [reduced]
        arguments, state, items, pairs = (*reduced[1:5], None, None, None)[:4]
        parts = (arguments, state, items and list(items), pairs and dict(pairs))
    except Exception:  # it cannot be pickled
        return attributes_of(value)
    return [part for part in parts if part is not None]


def _holds_process_number(value: Any, depth: int = 2) -> bool:
    if isinstance(value, (dict, list, tuple)) and len(value) <= 64 and depth:
        parts = value.values() if isinstance(value, dict) else value
        return any(_holds_process_number(part, depth - 1) for part in parts)
    return isinstance(value, (int, np.integer)) and int(value) == os.getpid()


def _has_two_values(value: Any) -> bool:
    """Whether it holds floating-point numbers that are not all the same."""
    with suppress(
        Exception
    ):  # a sparse tensor, a subclass that cannot be compared: a report makes no batch fail
        # Without the subclass: to compare two of its numbers may take it as long as all the rest of the batch.
        if isinstance(value, torch.Tensor):
            flat: Any = value.as_subclass(torch.Tensor).reshape(-1)
            is_float = flat.dtype.is_floating_point and flat.device.type == "cpu"
        elif isinstance(value, np.ndarray):
            flat = np.asarray(value).reshape(-1)
            is_float = flat.dtype.kind == "f"
        else:
            return False
        return is_float and len(flat) > 1 and bool((flat != flat[0]).any())
    return False


def differing_keys(
    ours: dict[str, str], theirs: dict[str, str], ignore: tuple[str, ...]
) -> list[str]:
    """The keys in which two makings differ, in order."""
    keys = [*ours, *(key for key in theirs if key not in ours)]
    return [key for key in keys if key not in ignore and ours.get(key) != theirs.get(key)]


def explain(
    make: Callable[[], Any], objects: Mapping[str, Any], references: list[Any]
) -> Explanation:
    """Make a batch, and note what each transform on the way returns, and the state (`state_of`) it was made from."""
    found = Explanation(state=state_of(objects, references))
    with stages_told(lambda name, result: found.stages.append((name[:60], _print_of(result)))):
        try:
            make()
        except Exception as error:
            found.stages.append((type(error).__name__, str(error)[:1000]))
    return found


@contextmanager
def stages_told(note: Callable[[str, Any], None]) -> Iterator[None]:
    """Inside, `note` gets the class of each transform, loader or data set that returns something in this thread, and what."""
    room = iter(range(_MOST_KEYS))

    def listen(frame: types.FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if event != "return" or code.co_name not in (
            "__call__",
            "generate_train_batch",
            "__getitem__",
            "__next__",
        ):
            return
        owner = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        if (
            owner is None
            or str(frame.f_globals.get("__name__")).startswith(_NO_STAGES)
            or next(room, None) is None
        ):
            return
        sys.setprofile(None)
        try:
            note(type(owner).__qualname__, result)
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
    own = {id(value) for value in objects.values()}

    def is_ours(value: Any) -> bool:
        return type(value).__module__.startswith("detaug.") and id(value) not in own

    def is_opened(value: Any) -> bool:
        return not (is_ours(value) or _is_generator(value) or _is_array(value))

    state: dict[str, str] = {}
    room = _MOST_CHARACTERS
    roots = [*objects.items(), *variables_of(references)]
    for path, value in walk(roots, _MOST_VALUES, into=is_opened, plain=True):
        if is_ours(value):
            continue
        if isinstance(value, (list, tuple, dict, set)):
            state[f"{path}.len()"] = str(len(value))
            continue
        text = _text_of(value)
        if text is None:
            continue
        state[path] = text
        room -= len(path) + len(text)
        if room <= 0:
            break
    return state


def _text_of(value: Any) -> str | None:
    """Return a short text of a value that has no parts to be looked at; None if it has."""
    if _is_generator(value):
        return type(value).__name__  # seeded for every batch, whatever state it is in
    if _is_array(value):
        return f"{type(value).__name__} {tuple(value.shape)} {_print_of(value)[:12]}"
    if isinstance(value, _PLAIN):
        return repr(value)[:80]
    return None


def _is_generator(value: Any) -> bool:
    kind = type(value)
    return reseeder_of(kind) is not None and kind.__module__.startswith(_GENERATORS)


def _is_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, torch.Tensor))


def what_diverged(live: Explanation, fresh: Explanation) -> tuple[str, list[str]]:
    """(the first transform whose result differs, the values that had changed) between two makings of one batch."""
    pairs = zip(live.stages, fresh.stages, strict=False)
    stage = next((" or ".join(dict.fromkeys((a[0], b[0]))) for a, b in pairs if a != b), "")
    paths = differing_keys(live.state, fresh.state, ("data_loader.thread_id",))  # which detaug sets
    now, at_first = (
        {path: each.state.get(path, "absent") for path in paths} for each in (live, fresh)
    )
    return stage, [f"{path}: {at_first[path]} at first, {now[path]} now" for path in paths]
