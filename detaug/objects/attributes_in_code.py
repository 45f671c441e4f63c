"""The attributes that the methods of a class overwrite, change, or leave uninitialised."""

from __future__ import annotations

import inspect
import types
from collections.abc import Mapping
from functools import lru_cache

from detaug.objects.compiled_code import (
    attributes_loaded,
    attributes_set_to_empty,
    codes_in,
    instructions_of,
    overwritten_in,
    writes_in,
)
from detaug.objects.references import is_the_users_own

#: These run before a pipeline is taken: what they write is as much a setting as what a module
#: writes.
CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__")
#: Names of code that may set any attribute.
_SETTING_ANY = frozenset(("setattr", "__setattr__", "__dict__", "vars"))
_MAKING_SETS = frozenset(("set", "frozenset"))
_BUILDING_SETS = ("BUILD_SET", "SET_ADD")
#: Stands for all attributes.
ANY = "*"


@lru_cache(maxsize=4096)
def overwritten_attributes(kind: type) -> Mapping[str, frozenset[str]]:
    """Return the attributes whose whole contents a class's methods write in place.

    They are memory to work in: ``self.buffer[:] = x``, ``np.add(a, b, out=self.buffer)``.
    Constructors do not count.

    Returns:
        By attribute the methods that do.
    """
    writers: dict[str, set[str]] = {}
    for name, functions in _functions_of(kind).items():
        if name in CONSTRUCTORS:
            continue
        for function in functions:
            for attribute in overwritten_in(function.__code__):
                writers.setdefault(attribute, set()).add(name)
    return {attribute: frozenset(names) for attribute, names in writers.items()}


@lru_cache(maxsize=4096)
def uninitialised_attributes(kind: type) -> Mapping[str, frozenset[str]]:
    """Return the attributes that a constructor leaves as ``numpy.empty`` or ``torch.empty`` does.

    Whatever such an array holds then was in the memory before. Attributes that the constructor, or
    a method that it may call, reads are left out: the array may be filled there.

    Returns:
        By attribute the methods that read it. If one of them is for the program, such as ``fit``,
        the array may be filled there.
    """
    functions = _functions_of(kind)
    empty: set[str] = set()
    read: set[str] = set()
    pending = list(CONSTRUCTORS)
    met: set[str] = set()
    while pending:
        name = pending.pop()
        if name in met:
            continue
        met.add(name)
        for function in functions.get(name, ()):
            pending.extend(function.__code__.co_names)
            for code in codes_in(function.__code__):
                instructions = instructions_of(code)
                empty.update(attributes_set_to_empty(instructions))
                read.update(attributes_loaded(instructions))
    readers: dict[str, frozenset[str]] = {}
    for attribute in empty - read:
        methods = {
            name
            for name in functions
            if any(attribute in function.__code__.co_names for function in functions[name])
        }
        methods -= set(CONSTRUCTORS)
        if methods:
            readers[attribute] = frozenset(methods)
    return readers


@lru_cache(maxsize=4096)
def changed_attributes(kind: type) -> tuple[Mapping[str, set[str]], Mapping[str, set[str]]]:
    """Return the attributes that a class's methods change, other than constructors.

    Returns:
        The attributes that are set, and those whose contents may be changed, each with the methods
        that do. `ANY` stands for all attributes, where they are set by names that are no constants.
    """
    is_set: dict[str, set[str]] = {}
    is_written: dict[str, set[str]] = {}
    for name, functions in _functions_of(kind, of_libraries=True).items():
        if name in CONSTRUCTORS:
            continue
        for function in functions:
            for code in codes_in(function.__code__):
                if is_the_users_own(function) and not _SETTING_ANY.isdisjoint(code.co_names):
                    is_set.setdefault(ANY, set()).add(name)
                for instruction in instructions_of(code):
                    if instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
                        is_set.setdefault(instruction.argval, set()).add(name)
                written = [read.steps[0][1] for read in writes_in(code).of_owner]
                for attribute in (*written, *overwritten_in(code)):
                    is_written.setdefault(attribute, set()).add(name)
    return is_set, is_written


@lru_cache(maxsize=4096)
def uses_sets(kind: type) -> bool:
    """Return whether a class's methods make sets, whose order differs between interpreters."""
    for functions in _functions_of(kind).values():
        for function in functions:
            for code in codes_in(function.__code__):
                if not _MAKING_SETS.isdisjoint(code.co_names):
                    return True
                if any(step.opname in _BUILDING_SETS for step in instructions_of(code)):
                    return True
    return False


def _functions_of(kind: type, of_libraries: bool = False) -> dict[str, list[types.FunctionType]]:
    """Return the functions of a class and its bases by name.

    Args:
        kind: the class.
        of_libraries: also those of bases that are not the user's.
    """
    functions: dict[str, list[types.FunctionType]] = {}
    for owner in kind.__mro__:
        if not of_libraries and not is_the_users_own(owner):
            continue
        for name, item in vars(owner).items():
            function = inspect.unwrap(getattr(item, "__func__", item))
            if isinstance(item, property):
                function = item.fget
            if isinstance(function, types.FunctionType):
                functions.setdefault(name, []).append(function)
    return functions


def is_called_by_others(kind: type, name: str) -> bool:
    """Return whether Python or a library calls a method, even if no code of the user's names it."""
    return name.startswith("__") or _is_of_library(kind, name)


def _is_of_library(kind: type, name: str) -> bool:
    """Return whether a method takes the place of a library's, which calls it."""
    libraries = [base for base in kind.__mro__ if not is_the_users_own(base)]
    return any(name in vars(base) for base in libraries)
