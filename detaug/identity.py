"""What a pipeline declares itself to be: class names and declared parameters, for state dicts to be compared by.

Pickle bytes are no identity: they change with caches and library versions. A declared parameter is an argument of
``__init__`` that the object keeps under the same name (or with an underscore before it).
"""

from __future__ import annotations

import enum
import functools
import inspect
import types
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

_DEPTH = 6
_LONGEST_LIST = 64
_SCALARS = (str, bytes, bool, int, float, complex, type(None))
_NOT_PARAMETERS = ("self", "args", "kwargs", "rng")


def describe(value: Any, name: str) -> list[str]:
    """One line for each object and each declared parameter below `value`: ``path = text``."""
    return list(_lines(value, name, _DEPTH, ()))


def _lines(value: Any, path: str, depth: int, above: tuple[int, ...]) -> Iterator[str]:
    if id(value) in above:
        return
    simple = _simple(value)
    if simple is not None or depth == 0:
        yield f"{path} = {simple if simple is not None else _class_name(value)}"
        return
    above = (*above, id(value))
    if isinstance(value, Mapping):
        yield f"{path} = {_class_name(value)} of {len(value)}"
        if len(value) <= _LONGEST_LIST:
            for key, item in value.items():
                yield from _lines(item, f"{path}[{key!r}]", depth - 1, above)
    elif isinstance(value, (list, tuple)):
        yield f"{path} = {_class_name(value)} of {len(value)}"
        if len(value) <= _LONGEST_LIST:
            for i, item in enumerate(value):
                yield from _lines(item, f"{path}[{i}]", depth - 1, above)
    else:
        yield f"{path} = {_class_name(value)}"
        for name, item in _declared(value):
            yield from _lines(item, f"{path}.{name}", depth - 1, above)


def _simple(value: Any) -> str | None:
    """The text of what has no parts; None for what has."""
    if isinstance(value, enum.Enum):
        return f"{_class_name(value)}.{value.name}"
    if isinstance(value, _SCALARS):
        return repr(value)
    if isinstance(value, np.generic):
        return repr(value.item())
    if isinstance(value, (np.ndarray, torch.Tensor)):
        shape = tuple(value.shape)
        if int(np.prod(shape)) <= _LONGEST_LIST and getattr(value, "dtype", None) != np.dtype(object):
            return f"{type(value).__name__}{value.tolist()!r}"
        return f"{type(value).__name__} of shape {shape}, {value.dtype}"
    if isinstance(value, (torch.dtype, torch.device, np.dtype)):
        return str(value)
    if isinstance(value, type):
        return f"class {value.__module__}.{value.__qualname__}"
    if isinstance(value, functools.partial):
        return None
    if isinstance(value, (types.FunctionType, types.BuiltinFunctionType, types.MethodType)):
        return f"function {getattr(value, '__module__', '')}.{value.__qualname__}"
    if isinstance(value, (list, tuple)) and len(value) <= _LONGEST_LIST:
        parts = [_simple(item) if isinstance(item, (*_SCALARS, np.generic, list, tuple)) else None for item in value]
        if all(part is not None for part in parts):
            inside = ", ".join(str(part) for part in parts)
            return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return None


def _class_name(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _declared(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, functools.partial):
        yield "func", value.func
        yield "args", value.args
        yield "keywords", value.keywords
        return
    kept = getattr(value, "__dict__", {})
    seen = set()
    for owner in type(value).__mro__:
        constructor = vars(owner).get("__init__")
        if not isinstance(constructor, types.FunctionType):
            continue
        for name in inspect.signature(constructor).parameters:
            if name in seen or name in _NOT_PARAMETERS:
                continue
            seen.add(name)
            for attribute in (name, f"_{name}"):
                if attribute in kept:
                    yield name, kept[attribute]
                    break


def differences(ours: list[str], theirs: list[str]) -> str:
    """The first lines in which two descriptions differ, for an error message."""
    mine, other = dict(_split(ours)), dict(_split(theirs))
    found = []
    for path in [*mine, *(path for path in other if path not in mine)]:
        if mine.get(path) != other.get(path):
            found.append(f"{path}: here {mine.get(path, 'absent')}, in the state {other.get(path, 'absent')}")
    shown = found[:5]
    return "; ".join(shown) + (f"; and {len(found) - 5} more" if len(found) > 5 else "")


def _split(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        path, _, text = line.partition(" = ")
        yield path, text
