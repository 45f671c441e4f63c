"""From an object to what it holds: walks over objects, the containers of a batch, and settings.

They differ in what they lead through. `walk` meets whatever an object refers to: attributes,
slots, closures, items. `leaves` opens containers alone, since the objects in a batch are its
values, and a batch is not to change because of what one of them refers to. `flat` opens mappings:
the lists in settings and records are values.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import types
from collections import UserDict, UserList, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

#: Values that hold nothing else. torch's dtypes and devices hold nothing either.
_PLAIN = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    type(None),
    np.generic,
    range,
    slice,
    np.dtype,
)
#: What belongs to a program, not to the object that refers to it.
_CODE = (type, types.ModuleType, types.CodeType, types.FrameType)

#: A path, as it is written in Python, and what stands there.
Edge = tuple[str, Any]


def walk(
    roots: Iterable[Edge],
    most: int | None = None,
    into: Callable[[Any], bool] | None = None,
    parts: Callable[[str, Any], Iterable[Edge]] | None = None,
    plain: bool = False,
) -> Iterator[Edge]:
    """Yield what lies in objects, each once and by its shortest path, the nearest first.

    Args:
        roots: where to begin, by the names that paths begin with.
        most: how many objects are met, and how many parts of one; None: all.
        into: whether the parts of an object are met; None: of all.
        parts: what an object at a path leads to, by paths; None: what it holds (`parts_of`).
        plain: also yield numbers, texts and the like, at every place where they stand.
    """
    seen: set[int] = set()
    # An object that is made on the way keeps its address only while it lives.
    alive: list[Any] = []
    pending: deque[Edge] = deque(roots)
    while pending and (most is None or len(alive) < most):
        path, value = pending.popleft()
        if isinstance(value, _PLAIN):
            if plain:
                yield path, value
            continue
        if id(value) in seen:
            continue
        seen.add(id(value))
        alive.append(value)
        yield path, value
        if into is None or into(value):
            found = _held_in(path, value) if parts is None else parts(path, value)
            pending.extend(islice(found, most))


def paths_of(targets: Collection[Any], roots: Mapping[str, Any]) -> dict[int, str]:
    """Return the shortest path to each target that references lead to, by its ``id``.

    A path reads ``"transform.transforms[2].rng"``.
    """
    wanted = {id(target) for target in targets}
    found = ((id(value), path) for path, value in walk(roots.items()) if id(value) in wanted)
    return dict(islice(found, len(wanted)))


def _held_in(path: str, value: Any) -> Iterator[Edge]:
    return ((path + label, part) for label, part in parts_of(value))


def parts_of(value: Any) -> Iterator[Edge]:
    """Yield what an object holds by its label in a path; not what its class or module holds."""
    if isinstance(value, _CODE):
        return
    if isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield f"[{_key(key, number)}]", item
    elif isinstance(value, (list, tuple, deque)):
        for number, item in enumerate(value):
            yield f"[{number}]", item
    elif isinstance(value, types.FunctionType):
        yield from parts_of_function(value)
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, functools.partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
    elif isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            yield ".flat", value.ravel().tolist()
    elif isinstance(value, types.BuiltinFunctionType):
        if not isinstance(value.__self__, (types.ModuleType, type)):
            yield ".__self__", value.__self__
    elif isinstance(value, np.random.Generator):
        yield ".bit_generator", value.bit_generator
    else:
        yield from _parts_of_object(value)


def parts_of_function(function: types.FunctionType) -> Iterator[Edge]:
    """Yield what a function keeps: its closure, its defaults, its attributes."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # the variable is not yet set
            yield f".<{name}>", cell.cell_contents
    yield ".__defaults__", function.__defaults__
    yield ".__kwdefaults__", function.__kwdefaults__
    for name, item in vars(function).items():
        yield f".{name}", item


def _parts_of_object(value: Any) -> Iterator[Edge]:
    attributes = attributes_of(value)
    named = {id(type(value)), id(attributes)}
    if not isinstance(attributes, dict):
        attributes = {}
    for holder in (attributes, slots_of(value)):
        for name, item in list(holder.items()):
            named.add(id(item))
            yield f".{name}", item
    # Built-in classes (and subclasses of set) hold more than that.
    for number, item in enumerate(gc.get_referents(value)):
        if id(item) not in named:
            yield f".~{number}", item


def attributes_of(value: Any) -> Any:
    """Return an object's ``__dict__``; None if there is none.

    ``__getattr__`` of its class is not asked: it may raise anything.
    """
    try:
        return object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None


def slots_of(value: Any) -> dict[str, Any]:
    """Return an object's attributes that lie in slots and are set."""
    slots = {}
    kind: Any = type(value)
    for name, member in _members_of(kind):
        with suppress(AttributeError):  # not set
            slots[name] = member.__get__(value)
    return slots


@lru_cache(maxsize=4096)
def _members_of(kind: type) -> tuple[tuple[str, types.MemberDescriptorType], ...]:
    members = []
    for owner in kind.__mro__:
        for name, member in vars(owner).items():
            if isinstance(member, types.MemberDescriptorType):
                members.append((name, member))
    return tuple(members)


def _key(key: Any, number: int) -> str:
    """Return how a dict's key is written; one that has no stable text goes by its position."""
    if key is None:
        return "None"
    parts = key if isinstance(key, tuple) else (key,)
    has_text = all(isinstance(part, (str, int, float, bytes)) for part in parts)
    return repr(key) if has_text else f"#{number}"


# --- the containers of a batch ---


def leaves(value: Any, path: str = "") -> Iterator[Edge]:
    """Yield what stands in nested containers, by its path, in order; empty containers too."""
    items = items_of(value)
    if not items:
        yield path, value
    for number, (key, item) in enumerate(items):
        is_attribute = not isinstance(value, (dict, list, tuple, deque))
        label = f".{key}" if is_attribute else f"[{_key(key, number)}]"
        yield from leaves(item, path + label)


def items_of(container: Any) -> list[tuple[Any, Any]]:
    """Return a container's items by key, place or attribute; none of what is no container."""
    if isinstance(container, dict):
        # A subclass may load what it is asked for, so that dict itself is asked.
        return list(dict.items(container))
    if isinstance(container, (list, tuple, deque)):
        return list(enumerate(container))
    if isinstance(container, (UserDict, UserList)):
        return [("data", container.data)]
    if dataclasses.is_dataclass(container) and not isinstance(container, type):
        names = [field.name for field in dataclasses.fields(container)]
        return [(name, getattr(container, name)) for name in names if hasattr(container, name)]
    return []


# --- settings and records ---


def flat(value: Any, path: str = "") -> Iterator[Edge]:
    """Yield what stands in nested mappings by a dotted path, such as ``blas.0.version``.

    A list is one value, unless mappings stand in it.
    """
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            yield from flat(part, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        yield from flat(dict(enumerate(value)), path)
    else:
        yield path, value
