"""Walks over objects, the containers of a batch, and settings.

They differ in what they open. `walk` opens every object: its attributes, slots, closures, items.
`leaves` opens containers alone, since the objects in a batch are its values, and a batch must not
change because of what one of them refers to. `flat` opens mappings: the lists in settings and
records are values.
"""

from __future__ import annotations

import dataclasses
import functools
import gc
import types
from collections import UserDict, UserList, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from configparser import RawConfigParser, SectionProxy
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
#: Objects that belong to a program, and not to the object that refers to them.
_CODE = (type, types.ModuleType, types.CodeType, types.FrameType)

_LIBRARY_TYPES = (
    types.MethodType,
    functools.partial,
    np.ndarray,
    types.BuiltinFunctionType,
    np.random.Generator,
)

#: A path, as it is written in Python, and the object at that path.
Edge = tuple[str, Any]


def walk(
    roots: Iterable[Edge],
    most: int | None = None,
    into: Callable[[Any], bool] | None = None,
    parts: Callable[[str, Any], Iterable[Edge]] | None = None,
    plain: bool = False,
) -> Iterator[Edge]:
    """Yield the objects that roots lead to, each once, by its shortest path, the nearest first.

    Args:
        roots: the first objects, by the names that paths begin with.
        most: the largest number of objects that are yielded, and of parts of one; None for all.
        into: returns whether the parts of an object are yielded; None for all objects.
        parts: returns the parts of an object at a path, by their paths; None for `parts_of`.
        plain: also yield numbers, texts and the like, at each of their paths.
    """
    seen: set[int] = set()
    # An object that is made on the way keeps its address only while it lives.
    alive: list[Any] = []
    # A queue, so that the nearest objects come first and `most` leaves out the deepest.
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
            if parts is None:
                pending.extend(islice(_parts_by_path(path, value), most))
            else:
                pending.extend(islice(parts(path, value), most))


def paths_of(targets: Collection[Any], roots: Mapping[str, Any]) -> dict[int, str]:
    """Return the shortest path to each target that references lead to, by its ``id``.

    A path reads ``"transform.transforms[2].rng"``.
    """
    wanted = {id(target) for target in targets}
    paths: dict[int, str] = {}
    if not wanted:
        return paths
    for path, value in walk(roots.items()):
        if id(value) in wanted:
            paths[id(value)] = path
            # The rest of a large pipeline is not walked through in vain.
            if len(paths) == len(wanted):
                break
    return paths


def _parts_by_path(path: str, value: Any) -> Iterator[Edge]:
    for label, part in parts_of(value):
        yield path + label, part


def parts_of(value: Any) -> Iterator[Edge]:
    """Yield an object's own parts by their labels in a path, not those of its class or module."""
    if isinstance(value, _CODE):
        return
    if isinstance(value, dict):
        for index, (key, item) in enumerate(value.items()):
            yield f"[{_key(key, index)}]", item
    elif isinstance(value, (list, tuple, deque)):
        for index, item in enumerate(value):
            yield f"[{index}]", item
    elif isinstance(value, types.FunctionType):
        yield from parts_of_function(value)
    elif isinstance(value, _LIBRARY_TYPES):
        yield from _parts_of_library_object(value)
    else:
        yield from _parts_of_object(value)


def _parts_of_library_object(value: Any) -> Iterator[Edge]:
    """Yield the parts of an object of `_LIBRARY_TYPES`, which are not in its ``__dict__``."""
    if isinstance(value, types.MethodType):
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


def is_omegaconf(kind: type) -> bool:
    """Return whether a class is one of OmegaConf's, in which Hydra has a program's settings."""
    return kind.__module__.partition(".")[0] == "omegaconf"


def _parts_of_omegaconf(value: Any) -> Iterator[Edge]:
    # There is such an object, so the library has been imported.
    from omegaconf import Container, OmegaConf

    if not isinstance(value, Container):
        return
    plain: Any = OmegaConf.to_container(value, resolve=False)
    if not isinstance(plain, dict):
        yield from parts_of(plain)
        return
    for name, item in plain.items():
        yield f".{name}", item


def options_of(settings: RawConfigParser | SectionProxy) -> dict[str, Any]:
    """Return the options of a section, or of all by section, as they were set."""
    if isinstance(settings, SectionProxy):
        options: dict[str, Any] = options_of(settings.parser).get(settings.name, {})
        return options
    return {name: dict(settings.items(name, raw=True)) for name in settings.sections()}


def parts_of_function(function: types.FunctionType) -> Iterator[Edge]:
    """Yield the variables of a function's closure, its defaults and its attributes."""
    names = function.__code__.co_freevars
    cells = function.__closure__ or ()
    for name, cell in zip(names, cells, strict=True):
        # A variable of the closure may not be set yet.
        with suppress(ValueError):
            yield f".<{name}>", cell.cell_contents
    yield ".__defaults__", function.__defaults__
    yield ".__kwdefaults__", function.__kwdefaults__
    for name, item in vars(function).items():
        yield f".{name}", item


def _parts_of_object(value: Any) -> Iterator[Edge]:
    if isinstance(value, (RawConfigParser, SectionProxy)):
        yield from parts_of(options_of(value))
        return
    if is_omegaconf(type(value)):
        yield from _parts_of_omegaconf(value)
        return
    attributes = attributes_of(value)
    # What `gc.get_referents` leads to again: the class, the dict, and the attributes below.
    named = {id(type(value)), id(attributes)}
    if not isinstance(attributes, dict):
        attributes = {}
    for holder in (attributes, slots_of(value)):
        # A list: another thread may set an attribute meanwhile.
        for name, item in list(holder.items()):
            named.add(id(item))
            yield f".{name}", item
    # Built-in classes (and subclasses of set) hold more than that.
    for index, item in enumerate(gc.get_referents(value)):
        if id(item) not in named:
            yield f".~{index}", item


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
        # A slot may not be set.
        with suppress(AttributeError):
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


def _key(key: Any, index: int) -> str:
    """Return the text of a dict's key; for one without a stable text its index in the dict."""
    if key is None:
        return "None"
    parts = key if isinstance(key, tuple) else (key,)
    has_text = all(isinstance(part, (str, int, float, bytes)) for part in parts)
    if not has_text:
        return f"#{index}"
    return repr(key)


# --- the containers of a batch ---


def leaves(value: Any, path: str = "") -> Iterator[Edge]:
    """Yield the values in nested containers, by path, in order; empty containers too."""
    items = items_of(value)
    if not items:
        yield path, value
    is_attribute = not isinstance(value, (dict, list, tuple, deque))
    for index, (key, item) in enumerate(items):
        label = f".{key}" if is_attribute else f"[{_key(key, index)}]"
        yield from leaves(item, path + label)


def items_of(container: Any) -> list[tuple[Any, Any]]:
    """Return a container's items by key, index or attribute; none for any other object."""
    if isinstance(container, dict):
        # dict's own method: that of a subclass may load an item from disk.
        return list(dict.items(container))
    if isinstance(container, (list, tuple, deque)):
        return list(enumerate(container))
    # They keep their items in `data`, an ordinary dict or list.
    if isinstance(container, (UserDict, UserList)):
        return [("data", container.data)]
    if dataclasses.is_dataclass(container) and not isinstance(container, type):
        items = []
        for field in dataclasses.fields(container):
            # A field with ``init=False`` may have no value.
            if hasattr(container, field.name):
                items.append((field.name, getattr(container, field.name)))
        return items
    return []


# --- settings and records ---


def flat(value: Any, path: str = "") -> Iterator[Edge]:
    """Yield the values in nested mappings by a dotted path, such as ``blas.0.version``.

    A list is one value, unless it has mappings as items.
    """
    if isinstance(value, Mapping) and value:
        for name, part in value.items():
            part_path = f"{path}.{name}" if path else str(name)
            yield from flat(part, part_path)
    elif isinstance(value, list) and any(isinstance(part, Mapping) for part in value):
        yield from flat(dict(enumerate(value)), path)
    else:
        yield path, value
