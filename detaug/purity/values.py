"""The plain values that objects hold: numbers, texts and arrays, by path, as short texts.

They say how one state of a pipeline differs from another: what a batch has changed, what a program
has set, what a constructor has drawn. Generators count by their class alone, for they are seeded
for every batch.
"""

from __future__ import annotations

import types
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.fingerprints import lenient_fingerprint
from detaug.seeding.reseeders import reseeder_of
from detaug.walking import Edge, parts_of, walk

#: How many objects are looked through.
MOST_OBJECTS = 20_000
#: Containers of more items are known by a digest, if all items are plain.
_LONGEST = 64
#: Characters of a text beyond which its beginning and a digest stand for it.
_LONGEST_TEXT = 80
#: Where Python's, NumPy's and torch's generators are defined.
_GENERATORS = ("random", "numpy.random", "torch")
_PLAIN = (str, bytes, bytearray, int, float, complex, bool, type(None), np.generic)
_SETS = (set, frozenset)
_SEQUENCES = (list, tuple, deque)
#: What lies in one of these belongs to the object that has it as an attribute.
_CONTAINERS = (
    *(dict, list, tuple, deque, UserDict, UserList, types.MappingProxyType, types.MethodType),
    np.ndarray,
)


class Value(NamedTuple):
    """A plain value.

    Attributes:
        text: the value, or the beginning and a digest of a long one.
        owner: the path of the last object, other than a container, on the way to it.
        attribute: how it, or what it lies in, is written after the owner's path: ``".n"``.
    """

    text: str
    owner: str
    attribute: str


class _Place(str):
    """A path that knows which object's attribute it leads through last."""

    owner = ""
    attribute = ""


def values_in(
    roots: Iterable[Edge],
    is_opened: Callable[[str, Any], bool] | None = None,
    digest: Callable[[Any], str] | None = None,
    objects: bool = False,
) -> Iterator[tuple[str, Value]]:
    """Yield the plain values in objects by path, the nearest first; of containers their length too.

    Args:
        roots: where to begin, by the names that paths begin with.
        is_opened: whether an object at a path is looked at at all; None: all are.
        digest: of an array or a long container; None: of all of it.
        objects: also yield the class of every object.
    """
    digest = digest or digest_of
    closed: set[int] = set()

    def parts(path: str, value: Any) -> Iterator[Edge]:
        assert isinstance(path, _Place)
        for label, part in parts_of(value):
            place = _Place(path + label)
            if isinstance(value, _CONTAINERS):
                place.owner, place.attribute = path.owner, path.attribute
            else:
                place.owner, place.attribute = str(path), label
            yield place, part

    def is_entered(value: Any) -> bool:
        return id(value) not in closed

    places = ((_Place(path), value) for path, value in roots)
    for path, value in walk(places, MOST_OBJECTS, into=is_entered, parts=parts, plain=True):
        assert isinstance(path, _Place)
        if is_opened is not None and not is_opened(path, value):
            closed.add(id(value))
            continue
        text = text_of(value, digest)
        if text is not None:
            closed.add(id(value))
            yield str(path), Value(text, path.owner, path.attribute)
        elif isinstance(value, (dict, *_SEQUENCES)):
            yield f"{path}.len()", Value(str(len(value)), path.owner, path.attribute)
        elif objects:
            text = f"an object of type {type(value).__qualname__}"
            yield str(path), Value(text, path.owner, path.attribute)


def text_of(value: Any, digest: Callable[[Any], str]) -> str | None:
    """Return a short text of a value whose parts are not looked at; None if they are."""
    if _is_generator(value):
        return type(value).__name__
    if isinstance(value, (np.ndarray, torch.Tensor)):
        if isinstance(value, np.ndarray) and value.dtype.hasobject:
            return None
        return f"{type(value).__name__} {tuple(value.shape)} {digest(value)}"
    if isinstance(value, _PLAIN):
        return _text_of_plain(value)
    if isinstance(value, _SETS):
        return _text_of_set(value, digest)
    if isinstance(value, (dict, *_SEQUENCES)) and len(value) > _LONGEST and _is_flat(value):
        return f"{type(value).__name__} of {len(value)} items, {digest(value)}"
    return None


def digest_of(value: Any) -> str:
    """Return a short digest of all of a value."""
    return lenient_fingerprint(value)[:12]


def _text_of_plain(value: Any) -> str:
    text = repr(value.item() if isinstance(value, np.generic) else value)
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]}… {digest_of(text)}"


def _text_of_set(value: Any, digest: Callable[[Any], str]) -> str:
    """Return a set's items in an order that is the same in every process."""
    if len(value) <= 8 and all(isinstance(item, _PLAIN) for item in value):
        return f"{{{', '.join(sorted(map(_text_of_plain, value)))}}}"
    return f"{type(value).__name__} of {len(value)} items, {digest(value)}"


def _is_flat(value: Any) -> bool:
    items = value.values() if isinstance(value, dict) else value
    return all(isinstance(item, _PLAIN) for item in items)


def _is_generator(value: Any) -> bool:
    kind = type(value)
    return reseeder_of(kind) is not None and kind.__module__.startswith(_GENERATORS)
