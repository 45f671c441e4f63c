"""Inspection of the code of a user's loader, without running it."""

from __future__ import annotations

import dis
import inspect
from collections.abc import Iterator
from types import CodeType

#: Classes of batchgenerators that others derive loaders from.
_BASES = ("DataLoader", "DataLoaderBase", "SlimDataLoaderBase")
#: Instructions between the load of an exception's name and the raise statement's own: the call of
#: the class, with constants as arguments.
_ON_THE_WAY_TO_RAISE = ("CACHE", "PRECALL", "CALL", "PUSH_NULL", "LOAD_CONST", "LOAD_SMALL_INT")


def mentions(kind: type, name: str) -> bool:
    """Return whether the user's part of a class refers to that name."""
    return any(name in code.co_names for code in _codes_of(kind))


def raises(kind: type, name: str) -> bool:
    """Return whether the user's part of a class raises an exception of that name."""
    return any(_has_raise(code, name) for code in _codes_of(kind))


def _has_raise(code: CodeType, name: str) -> bool:
    is_pending = False
    for instruction in dis.get_instructions(code):
        if instruction.opname == "LOAD_GLOBAL" and instruction.argval == name:
            is_pending = True
        elif is_pending and instruction.opname == "RAISE_VARARGS":
            return True
        elif instruction.opname not in _ON_THE_WAY_TO_RAISE:
            is_pending = False
    return False


def _codes_of(kind: type) -> Iterator[CodeType]:
    """Yield the code of the methods of a class and its bases, down to batchgenerators' own."""
    for base in kind.__mro__:
        if base.__name__ in _BASES and base.__module__.startswith("batchgenerators."):
            return
        for value in vars(base).values():
            function = inspect.unwrap(value) if callable(value) else value
            code = getattr(function, "__code__", None)
            if isinstance(code, CodeType):
                yield from _with_inner(code)


def _with_inner(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _with_inner(constant)
