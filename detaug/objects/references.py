"""From a pipeline's classes and functions to what their code refers to.

A pickler meets everything that it copies, but does not look into what copies share: class
attributes, variables of modules, closures. The functions here do that, on the pristine pipeline
and once.
"""

from __future__ import annotations

import functools
import inspect
import sys
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import chain
from typing import Any

from detaug.objects.walking import Edge, parts_of, parts_of_function, walk

#: Built-in objects that lead to the user's.
_LED_THROUGH = (
    *(dict, list, tuple, set, frozenset, deque),
    *(types.MethodType, types.BuiltinFunctionType, functools.partial),
)


def shared_generators(
    references: Iterable[Any], is_generator: Callable[[type], bool]
) -> dict[str, Any]:
    """Generators that a pipeline's classes and functions lead to, and that belong to no object:
    attributes of classes, variables of modules, what functions keep. By path:
    ``"package.module.Class.attribute"``.
    """
    roots = ((home_of(value), value) for value in references)
    met = walk(roots, into=lambda value: not is_generator(type(value)), parts=_reached_from)
    return {path: value for path, value in met if is_generator(type(value))}


def _reached_from(path: str, value: Any) -> Iterable[Edge]:
    """What code leads to from a class, a function or an object."""
    if isinstance(value, type):
        return _of_class(value)
    if isinstance(value, types.FunctionType):
        return _of_code(value)
    kind = type(value)
    if isinstance(value, types.ModuleType) or not (
        isinstance(value, _LED_THROUGH) or _is_in_reach(kind.__module__)
    ):
        return ()
    held = ((path + label, part) for label, part in parts_of(value))
    return chain([(home_of(kind), kind)], held)


def _of_class(kind: type) -> Iterator[Edge]:
    for owner in kind.__mro__ if _is_in_reach(kind.__module__) else ():
        if not _is_in_reach(owner.__module__):
            continue
        for name, item in list(vars(owner).items()):
            item = inspect.unwrap(getattr(item, "__func__", item)) if callable(item) else item
            for each in (item.fget, item.fset) if isinstance(item, property) else (item,):
                yield f"{owner.__module__}.{owner.__qualname__}.{name}", each
        yield from ((home_of(base), base) for base in owner.__bases__)


def _of_code(function: types.FunctionType) -> Iterator[Edge]:
    module = str(function.__module__)
    if not _is_in_reach(module):
        return
    home, variables = home_of(function), function.__globals__
    yield from ((home + label, part) for label, part in parts_of_function(function))
    names = _names_in(function.__code__)
    for name in sorted(names & variables.keys()):
        item = variables[name]
        found = {f"{variables.get('__name__', module)}.{name}": item}
        if isinstance(item, types.ModuleType):
            found = {
                f"{item.__name__}.{inner}": vars(item)[inner]
                for inner in sorted(names & vars(item).keys())
            }
        for path, each in found.items():
            # A library's functions lead to all of it; of those only variables are of interest.
            if _is_the_users(module) or not isinstance(each, (type, types.FunctionType)):
                yield path, each


def home_of(value: Any) -> str:
    """The full name of a class or function, or of an object's class."""
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__qualname__', type(value).__qualname__)}"


@lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> frozenset[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return frozenset(names)


_WITHOUT_GENERATORS = (
    *("numpy", "torch", "scipy", "numba", "detaug", "cloudpickle", "builtins"),
    # A pipeline in a test's module leads through them to the whole session of tests, and none of
    # theirs is a pipeline's.
    *("pytest", "_pytest", "pluggy", "xdist", "hypothesis"),
)


@lru_cache(maxsize=4096)
def _is_in_reach(module: str) -> bool:
    """Not in Python's and the mathematics libraries' own modules: their generators are the global
    ones.
    """
    top = str(module).partition(".")[0]
    return top not in _WITHOUT_GENERATORS and (
        top not in sys.stdlib_module_names or top == "__main__"
    )


def is_users_module(module: str) -> bool:
    """Return whether a module is the user's own code, and no library's nor Python's."""
    return _is_in_reach(module) and _is_the_users(module)


@lru_cache(maxsize=4096)
def _is_the_users(module: str) -> bool:
    """Whether a module is the user's own code and no installed library."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file


def is_the_users_own(value: Any) -> bool:
    """Whether it is a class or function of the user's own code, or an instance of such a class."""
    is_code = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
    return is_users_module(str((value if is_code else type(value)).__module__))
