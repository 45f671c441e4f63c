"""What a pipeline declares itself to be: class names and declared parameters, for state dicts to be compared by.

Pickle bytes are no identity: they change with caches and library versions. A declared parameter is an argument of
``__init__`` that the object keeps under the same name (or with underscores before it).

Two pipelines that were constructed alike have the same description, in every process: no address, no hash order and no
default ``repr`` enters it. Long containers and arrays enter as a digest; of arrays beyond 64 kB it covers 17 blocks of
4 kB, of long lists of objects 10,000 items, both evenly spaced, and of memory maps the shape alone, so that the cost
stays bounded. The order of a dict counts (a loader may enumerate its keys), that of a set does not.
"""

from __future__ import annotations

import functools
import inspect
import operator
import types
from collections import UserDict, UserList, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
import xxhash

from detaug.differences import differences as differences_of
from detaug.pipeline.identity_texts import array_text, class_name, short, text_of
from detaug.reports.escaping import printable
from detaug.walking import attributes_of, slots_of

_DEPTH = 24
_LONGEST_LIST = 64
_MOST_ITEMS = 10_000
_MOST_LOOKED_AT = 50_000
_MOST_LINES = 2_000
_NOT_PARAMETERS = ("self", "args", "kwargs", "rng")
_FLAT = {str, bytes, bool, int, float, complex, type(None)}
_DICTS = (dict, UserDict, types.MappingProxyType)
_LISTS = (list, tuple, deque, UserList)
_CALLS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_Place = tuple[int, ...]


def describe(value: Any, name: str) -> list[str]:
    """One line for each object and each declared parameter below `value`: ``path = text``."""
    lines = list(_Walk().lines(value, name, ()))
    if len(lines) > _MOST_LINES:
        rest = lines[_MOST_LINES:]
        lines[_MOST_LINES:] = [f"{name} (rest) = {len(rest)} lines, {_digest(rest)}"]
    return lines


class _Walk:
    """One walk over a pipeline. `above` are the ids of the objects on the way down, so that cycles end."""

    def __init__(self) -> None:
        self._lines_left = _MOST_LOOKED_AT

    def lines(self, value: Any, path: str, above: _Place) -> Iterator[str]:
        if id(value) in above:
            yield f"{path} = {class_name(value)} that holds this"
            return
        text = _simple(value)
        self._lines_left -= 1
        if text is not None:
            yield f"{path} = {text}"
            return
        if self._lines_left < 0 or len(above) >= _DEPTH:
            yield f"{path} = {class_name(value)}"
            return
        above = (*above, id(value))
        if isinstance(value, np.ndarray):  # of objects: the only ones that are not simple
            yield f"{path} = {array_text(value, None)}"
            yield from self._long(list(value.flat), path, above)
        elif isinstance(value, (*_DICTS, *_LISTS)):
            flat = _text_of_flat(value)
            yield f"{path} = {flat or f'{class_name(value)} of {len(value)}'}"
            if flat is None:
                yield from self._items(value, path, above)
            yield from self._each(_declared(value), path, above)
        elif isinstance(value, (set, frozenset)):
            # Elements are compared by what they are: neither hashes nor addresses order them the same everywhere.
            elements = sorted(
                " ".join(self.lines(item, "", above)) for item in _spaced(list(value), _MOST_ITEMS)
            )
            yield f"{path} = {class_name(value)} of {len(value)}: {short('{' + ', '.join(elements) + '}')}"
        else:
            # Of a mapping that may load what it is asked for, the number of items is all that is looked at.
            length = f" of {len(value)}" if isinstance(value, Mapping) else ""
            yield f"{path} = {class_name(value)}{length}"
            yield from self._each(_declared(value), path, above)

    def _each(self, parts: Iterable[tuple[str, Any]], path: str, above: _Place) -> Iterator[str]:
        for label, item in parts:
            yield from self.lines(item, path + label, above)

    def _items(self, value: Any, path: str, above: _Place) -> Iterator[str]:
        is_long, names = len(value) > _LONGEST_LIST, getattr(type(value), "_fields", None)
        if isinstance(value, _DICTS):
            entries = _spaced(list(enumerate(value.items())), _MOST_ITEMS)
            pairs = ((self._key(key, i, above), item) for i, (key, item) in entries)
            if is_long:
                yield from self._long(list(pairs), path, above)
            else:
                yield from self._each(((f"[{key}]", item) for key, item in pairs), path, above)
        elif isinstance(value, tuple) and names is not None:
            yield from self._each(
                ((f".{name}", item) for name, item in zip(names, value, strict=False)), path, above
            )
        elif is_long:
            yield from self._long(list(value), path, above)
        else:
            yield from self._each(((f"[{i}]", item) for i, item in enumerate(value)), path, above)

    def _key(self, key: Any, i: int, above: _Place) -> str:
        """A key's text; one that is known by its address alone goes by its class and its position."""
        if isinstance(key, (tuple, frozenset)):
            return " ".join(self.lines(key, "", above)).removeprefix(" = ")
        text = text_of(key)
        return text if text is not None else f"{class_name(key)} #{i}"

    def _long(self, items: list[Any], path: str, above: _Place) -> Iterator[str]:
        """Many items as one line."""
        kept = _spaced(items, _MOST_ITEMS)
        digest = _digest(chain.from_iterable(self.lines(item, "", above) for item in kept))
        yield f"{path}[:] = {digest}"


def _simple(value: Any, nested: int = 1) -> str | None:
    """The text of what has no parts, and of short tuples and lists of such; None for the rest."""
    text = text_of(value)
    if text is None and type(value) in (list, tuple) and len(value) <= _LONGEST_LIST:
        parts = [_simple(item, nested - 1) if nested else text_of(item) for item in value]
        if None in parts:
            return None
        inside = ", ".join(map(str, parts))
        return f"[{inside}]" if type(value) is list else f"({inside})"
    return text


def _text_of_flat(value: Any) -> str | None:
    """One text for long containers of plain numbers and texts, at the speed of C; None for all else."""
    if type(value) not in (list, tuple, dict) or len(value) <= _LONGEST_LIST:
        return None
    values = value.values() if type(value) is dict else ()
    if not set(map(type, value)) | set(map(type, values)) <= _FLAT:
        return None
    return f"{class_name(value)} of {len(value)}, {_digest([repr(value)])}"


def _spaced(items: list[Any], most: int) -> list[Any]:
    """At most so many items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return items
    return [items[i * (len(items) - 1) // (most - 1)] for i in range(most)]


def _digest(texts: Iterable[str]) -> str:
    digest = xxhash.xxh3_128()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return f"digest {digest.hexdigest()[:16]}"


def _declared(value: Any) -> Iterator[tuple[str, Any]]:
    """Its declared parameters, each with how it is written in a path."""
    if isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, types.MethodType):
        yield from ((".__func__", value.__func__), (".__self__", value.__self__))
    elif isinstance(value, _CALLS):
        yield ".args", value.__reduce__()[1]
    elif isinstance(value, slice):
        yield from ((".start", value.start), (".stop", value.stop), (".step", value.step))
    elif any(
        (kind.__module__, kind.__name__) == ("datasets.arrow_dataset", "Dataset")
        for kind in type(value).__mro__
    ):
        yield from _parts_of_table(value)
    else:
        yield from _arguments_kept(value)


def _arguments_kept(value: Any) -> Iterator[tuple[str, Any]]:
    seen = set()
    kept = {**slots_of(value), **(attributes_of(value) or {})}  # no property is called
    for owner in type(value).__mro__:
        constructor = vars(owner).get("__init__")
        if not isinstance(constructor, types.FunctionType):
            continue
        for name in _names_of_arguments(constructor):
            if name in seen or name in _NOT_PARAMETERS:
                continue
            spellings = (name, f"_{name}", f"_{owner.__name__.lstrip('_')}__{name}")
            if attribute := next((spelling for spelling in spellings if spelling in kept), None):
                seen.add(name)
                yield f".{name}", kept[attribute]


@functools.lru_cache(maxsize=1024)
def _names_of_arguments(constructor: types.FunctionType) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(constructor).parameters)
    except (ValueError, TypeError):
        return ()


def _parts_of_table(table: Any) -> Iterator[tuple[str, Any]]:
    """What a Hugging Face data set holds. Its own fingerprint may be random, its info names paths of this machine."""
    yield ".num_rows", table.num_rows
    yield ".features", {name: str(feature) for name, feature in table.features.items()}
    if table._indices is not None:
        rows = _spaced(list(range(table.num_rows)), 1000)
        yield ".indices", table._indices.column(0).take(rows).to_pylist()


def differences(ours: list[str], theirs: list[str]) -> str:
    """Return the first lines in which two descriptions differ, in words for an error message.

    Args:
        ours: the description of the pipeline here.
        theirs: the one in a state dict.
    """
    changed = list(differences_of(_by_path(ours), _by_path(theirs)))
    if not changed and ours != theirs:
        return "the same parameters in another order, such as the keys of a dict"
    shown = [f"{path}: here {here}, in the state {there}" for path, here, there in changed[:5]]
    if len(changed) > 5:
        shown.append(f"and {len(changed) - 5} more")
    # A state dict may be somebody else's, and what it says reaches the terminal in a traceback.
    return printable("; ".join(shown))


def _by_path(lines: list[str]) -> dict[str, str]:
    values = {}
    for line in lines:
        path, _, text = line.partition(" = ")
        values[path] = text
    return values
