"""The plain values that objects hold: numbers, texts and arrays, by path, as short texts.

They show how one state of a pipeline differs from another: the changes of a batch, the settings of
a program, the numbers that a constructor has drawn. Of generators only the class counts: they are
seeded for every batch.
"""

from __future__ import annotations

import functools
import itertools
import operator
import sys
import types
from array import array
from collections import UserDict, UserList, deque
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.objects.attributes_in_code import uses_sets
from detaug.objects.fingerprints import lenient_fingerprint
from detaug.objects.references import is_the_users_own
from detaug.objects.walking import Edge, parts_of, walk
from detaug.seeding.generators import GENERATORS

#: How many objects are searched for values.
MOST_OBJECTS = 20_000
#: A container of more items has a digest as its text, if all items are plain.
_LONGEST = 64
#: Characters of a text beyond which its beginning and a digest stand for it.
_LONGEST_TEXT = 80
#: The same of a path, whose end says most.
_LONGEST_PATH = 400
#: What takes attributes or items, or calls a method: its text has their names.
GETTERS = (operator.attrgetter, operator.itemgetter, operator.methodcaller)
#: Iterators that know how many items are left.
_ITERATORS: tuple[type[Any], ...] = (type(iter([])), type(iter(())), type(reversed([])))
_PLAIN: tuple[Any, ...] = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    bool,
    type(None),
    np.generic,
    PurePath,
    Decimal,
    Fraction,
    timedelta,
    range,
    slice,
    np.dtype,
    torch.dtype,
    itertools.count,
    *GETTERS,
    *_ITERATORS,
)
_SETS = (set, frozenset)
_SEQUENCES = (list, tuple, deque)
#: The values in one of these belong to the object that has it as an attribute.
_CONTAINERS = (
    dict,
    list,
    tuple,
    deque,
    UserDict,
    UserList,
    types.MappingProxyType,
    types.MethodType,
    np.ndarray,
)


class Value(NamedTuple):
    """A plain value.

    Attributes:
        text: the value, or the beginning and a digest of a long one.
        owner: the path of the last object, other than a container, on the way to it.
        attribute: how it, or what it lies in, is written after the owner's path: ``".n"``.
        holder: that object; None at a root.
    """

    text: str
    owner: str
    attribute: str
    holder: Any


class ValuePath(str):
    """A path that knows which object's attribute it leads through last.

    Attributes:
        owner: the path of the last object, other than a container, on the way.
        attribute: how its attribute is written after its path.
        holder: that object; None at a root.
    """

    owner = ""
    attribute = ""
    holder: Any = None

    def value(self, text: str) -> Value:
        """Return the value at this path with its text."""
        return Value(text, self.owner, self.attribute, self.holder)

    def order(self, text: str) -> Value:
        """Return the order of the keys of the dict at this path, as a value of its own."""
        return Value(text, self.owner, f"{self.attribute}.order", self.holder)


def values_in(
    roots: Iterable[Edge],
    is_opened: Callable[[ValuePath, Any], bool] | None = None,
    digest: Callable[[Any], str] | None = None,
    objects: bool = False,
    most: int = MOST_OBJECTS,
    keys: bool = False,
    stored: Callable[[Any], Iterable[Any]] | None = None,
) -> Iterator[tuple[str, Value]]:
    """Yield the plain values in objects by path, the nearest first; of containers their length too.

    Of functions and classes the name is a value.

    Args:
        roots: the first objects, by the names that paths begin with.
        is_opened: returns whether an object at a path is looked at; None for all objects.
        digest: returns the digest of an array or a long container; None for `digest_of`.
        objects: also yield the class of every object.
        most: the largest number of objects that are searched.
        keys: also yield the keys of dicts, sorted, and a digest of their order.
        stored: returns what an object holds that no attribute shows; None for nothing.
    """
    digest = digest or digest_of
    closed: set[int] = set()
    parts = functools.partial(_parts_by_path, stored=stored)

    def is_entered(value: Any) -> bool:
        return id(value) not in closed

    edges = [(ValuePath(path), value) for path, value in roots]
    for path, value in walk(edges, most, into=is_entered, parts=parts, plain=True):
        assert isinstance(path, ValuePath)
        # Objects that are not opened count towards `most` as well, so that the walk through a large
        # library's object ends.
        if is_opened is not None and not is_opened(path, value):
            closed.add(id(value))
            continue
        text = text_of(value, digest)
        if text is not None:
            # `walk` asks `is_entered` after this value was yielded, so its parts are skipped.
            closed.add(id(value))
            yield str(path), path.value(text)
        elif isinstance(value, (dict, *_SEQUENCES)):
            yield f"{path}.len()", path.value(str(len(value)))
            if keys and isinstance(value, dict):
                yield f"{path}.keys()", path.value(_text_of_keys(value, digest))
                if _has_an_order(path, value):
                    yield f"{path}.order", path.order(digest([repr(key) for key in value]))
        elif isinstance(value, types.FunctionType):
            yield f"{path}.__qualname__", path.value(repr(value.__qualname__))
        elif objects:
            # The class alone: the object's own values follow, each by its path.
            yield str(path), path.value(f"an object of type {type(value).__qualname__}")


def _parts_by_path(
    path: str, value: Any, stored: Callable[[Any], Iterable[Any]] | None
) -> Iterator[Edge]:
    """Yield an object's parts by their paths; those that `stored` returns come first.

    The object may refer to these itself, by references that have no name.
    """
    assert isinstance(path, ValuePath)
    if stored is not None and not isinstance(value, _CONTAINERS):
        for index, part in enumerate(stored(value)):
            yield _path_of_part(path, value, f".<stored>[{index}]", ".<stored>"), part
    for label, part in parts_of(value):
        if isinstance(value, _CONTAINERS):
            part_path = ValuePath(path + label)
            part_path.owner = path.owner
            part_path.attribute = path.attribute
            part_path.holder = path.holder
        else:
            part_path = _path_of_part(path, value, label, label)
        yield part_path, part


def _path_of_part(path: str, holder: Any, label: str, attribute: str) -> ValuePath:
    """Return the path of a part of an object; `label` is written after the object's path."""
    part_path = ValuePath(path + label)
    part_path.owner = str(path)
    part_path.attribute = attribute
    part_path.holder = holder
    return part_path


def text_of(value: Any, digest: Callable[[Any], str]) -> str | None:
    """Return a short text of a value whose parts are not looked at; None if they are."""
    if isinstance(value, GENERATORS):
        return type(value).__name__
    if isinstance(value, (np.ndarray, torch.Tensor)) or is_table(value):
        return _text_of_array(value, digest)
    if isinstance(value, _PLAIN):
        return _text_of_plain(value)
    if _has_only_a_name(value):
        return str(value.__name__)
    if isinstance(value, _SETS):
        return _text_of_set(value, digest)
    return _text_of_long_container(value, digest)


def _text_of_array(value: Any, digest: Callable[[Any], str]) -> str | None:
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return None
    return f"{type(value).__name__} {tuple(value.shape)} {digest(value)}"


def _text_of_long_container(value: Any, digest: Callable[[Any], str]) -> str | None:
    if isinstance(value, array):
        return f"array of {len(value)} items, {digest(value)}"
    if not isinstance(value, (dict, *_SEQUENCES)) or len(value) <= _LONGEST:
        return None
    if not _is_flat(value):
        return None
    return f"{type(value).__name__} of {len(value)} items, {digest(value)}"


def digest_of(value: Any) -> str:
    """Return a short digest of all of a value."""
    return lenient_fingerprint(value)[:12]


def is_table(value: Any) -> bool:
    """Return whether a value is a DataFrame, or another object of pandas that holds numbers."""
    is_pandas = type(value).__module__.partition(".")[0] == "pandas"
    return is_pandas and hasattr(value, "shape") and hasattr(value, "to_numpy")


def _text_of_plain(value: Any) -> str:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, PurePath):
        value = value.as_posix()
    if isinstance(value, _ITERATORS):
        return f"{type(value).__name__} with {operator.length_hint(value)} items left"
    return _shortened(repr(value))


def _shortened(text: str) -> str:
    """Return a text, or the beginning and a digest of a long one."""
    longest = _LONGEST_PATH if "/" in text else _LONGEST_TEXT
    if len(text) <= longest:
        return text
    return f"{text[:_LONGEST_TEXT]}… {digest_of(text)}"


def _text_of_set(value: Any, digest: Callable[[Any], str]) -> str:
    """Return a set's items in an order that is the same in every process."""
    if len(value) <= 8 and all(isinstance(item, _PLAIN) for item in value):
        return f"{{{', '.join(sorted(map(_text_of_plain, value)))}}}"
    return f"{type(value).__name__} of {len(value)} items, {digest(value)}"


def _text_of_keys(value: dict[Any, Any], digest: Callable[[Any], str]) -> str:
    """Return a dict's keys, sorted; a key without a text of its own counts by its class."""
    texts = []
    for key in value:
        if _is_key(key):
            texts.append(repr(key))
        else:
            texts.append(type(key).__qualname__)
    texts.sort()
    text = f"[{', '.join(texts)}]"
    if len(text) > _LONGEST_TEXT:
        return f"{len(value)} keys, {digest(texts)}"
    return text


def _has_an_order(path: ValuePath, value: dict[Any, Any]) -> bool:
    """Return whether the order of a dict's keys may matter, and can be compared.

    Keys that were taken from a set of texts have another order in every interpreter.
    """
    if path.holder is not None and not is_the_users_own(path.holder):
        return False
    if len(value) < 2 or not all(map(_is_key, value)):
        return False
    if all(isinstance(key, int) for key in value):
        return True
    kind: Any = type(path.holder)
    return not sys.flags.hash_randomization or not (path.holder is None or uses_sets(kind))


def _is_key(key: Any) -> bool:
    """Return whether a key has a text of its own."""
    return isinstance(key, (*_PLAIN, tuple))


def _is_flat(value: Any) -> bool:
    """Return whether all items are plain."""
    # By their classes: even a long list has few.
    items = value.values() if isinstance(value, dict) else value
    return all(issubclass(kind, _PLAIN) for kind in set(map(type, items)))


def _has_only_a_name(value: Any) -> bool:
    """Return whether it is a class, or a function of a library's that belongs to no object."""
    if isinstance(value, types.BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, types.ModuleType)
    return isinstance(value, (type, np.ufunc))
