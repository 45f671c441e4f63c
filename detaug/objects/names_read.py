"""The names by which code reads attributes, as far as it is called while batches are made.

A report that the program prints at its end reads attributes that no batch depends on: how long the
cases took to load, the number of a run. Code that makes a name at run time (``getattr``, ``vars``)
may read any attribute.
"""

from __future__ import annotations

import operator
import re
import types
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from detaug.objects.attributes_in_code import CONSTRUCTORS
from detaug.objects.compiled_code import codes_in
from detaug.objects.references import is_the_users_own

#: Names of what reads attributes by names that the code need not contain.
_READING_ANY = frozenset(
    (
        "__dict__",
        "__getattribute__",
        "__slots__",
        "asdict",
        "astuple",
        "attrgetter",
        "dumps",
        "eval",
        "exec",
        "fields",
        "getattr",
        "vars",
    )
)
#: Methods that no batch depends on.
_FOR_DISPLAY = ("__repr__", "__rich_repr__")
#: Methods that `dataclasses` makes of all fields, as code without a file.
_COMPARING = ("__eq__", "__ge__", "__gt__", "__hash__", "__le__", "__lt__")
_GENERATED = "<string>"
#: Modules whose classes say what a class is, or hold attributes, and do nothing.
_OF_TYPES = ("abc", "argparse", "builtins", "omegaconf", "types", "typing")
_WORDS = re.compile(r"\w+")


class _Function:
    """A function that was found.

    Attributes:
        function: the function.
        methods: the names that classes have it by.
        is_called: it is known to be called, whatever it is named.
    """

    def __init__(self, function: types.FunctionType) -> None:
        self.function = function
        self.methods: set[str] = set()
        self.is_called = False

    @property
    def is_constructor(self) -> bool:
        return not self.methods.isdisjoint(CONSTRUCTORS)


class NamesRead:
    """The functions and methods of a pipeline, and the names that are read when batches are made.

    Args:
        called: names of methods that are called although no code names them.
    """

    def __init__(self, called: Iterable[str]) -> None:
        self._called = set(called)
        self._reads_any = False
        self._functions: dict[int, _Function] = {}

    def add_function(self, function: types.FunctionType) -> None:
        """Add a function that something other than its class refers to: it may be called."""
        if not _is_for_display(function, function.__name__):
            self._found(function).is_called = True

    def add_variable(self, value: Any) -> None:
        """Add a variable that code reads: it may be what reads attributes."""
        if isinstance(value, operator.attrgetter):
            self._reads_any = True

    def add_method(self, function: types.FunctionType, name: str, is_called: bool) -> None:
        """Add a method.

        Args:
            function: the method's.
            name: the name that its class has it by.
            is_called: it is called by Python or a library, even if no code names it.
        """
        if _is_for_display(function, name):
            return
        self._found(function).methods.add(name)
        if is_called:
            self._called.add(name)

    def _found(self, function: types.FunctionType) -> _Function:
        return self._functions.setdefault(id(function), _Function(function))

    def names(self) -> frozenset[str] | None:
        """Return the names in the code that is called; None if it may read any attribute.

        Constructors run before batches are made. What they name is called, and not read.
        """
        called = set(self._called)
        read: set[str] = set()
        waiting = list(self._functions.values())
        while waiting:
            left = []
            for found in waiting:
                is_called = found.is_called or not called.isdisjoint(found.methods)
                if not is_called and not found.is_constructor:
                    left.append(found)
                    continue
                names = _names_in(found.function.__code__)
                called |= names
                if not found.is_constructor:
                    read |= names
            if len(left) == len(waiting):
                break
            waiting = left
        # A constructor may make one that batches are made with.
        has_getter = self._reads_any or "attrgetter" in called
        if has_getter or not _READING_ANY.isdisjoint(read):
            return None
        return frozenset(read)


def _is_for_display(function: types.FunctionType, name: str) -> bool:
    """Return whether a method shows an object, or compares all fields of a data class."""
    if name in _FOR_DISPLAY:
        return True
    return name in _COMPARING and function.__code__.co_filename == _GENERATED


@lru_cache(maxsize=4096)
def names_in_libraries_bases(kind: type) -> frozenset[str] | None:
    """Return the names in the methods of a class's bases that are not the user's.

    None if these may read any attribute.
    """
    names: set[str] = set()
    for owner in kind.__mro__:
        if is_the_users_own(owner) or owner.__module__.partition(".")[0] in _OF_TYPES:
            continue
        for name, item in vars(owner).items():
            function = getattr(item, "__func__", item)
            if isinstance(item, property):
                function = item.fget
            if isinstance(function, types.FunctionType) and name not in _FOR_DISPLAY:
                names |= _names_in(function.__code__)
    if not _READING_ANY.isdisjoint(names):
        return None
    return frozenset(names)


@lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> frozenset[str]:
    """Return the names in compiled code, and the words in its texts: they may be names as well."""
    names: set[str] = set()
    for part in codes_in(code):
        names.update(part.co_names)
        for text in _texts_in(part.co_consts):
            names.update(_WORDS.findall(text))
    return frozenset(names)


def _texts_in(constants: Iterable[Any]) -> Iterator[str]:
    for constant in constants:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, (tuple, frozenset)):
            yield from _texts_in(constant)
