"""The objects that the code of a pipeline's classes and functions refers to.

A pickler meets everything that it copies, but does not open what copies share: class
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
from typing import Any

from detaug.objects.walking import Edge, parts_of, parts_of_function, walk

#: Built-in objects that are opened: they lead to the user's.
_OPENED = (
    dict,
    list,
    tuple,
    set,
    frozenset,
    deque,
    types.MethodType,
    types.BuiltinFunctionType,
    functools.partial,
)


def shared_generators(
    references: Iterable[Any], is_generator: Callable[[type], bool]
) -> dict[str, Any]:
    """Return the generators that belong to no object, by path.

    They are attributes of classes, variables of modules, and what functions keep. A path reads
    ``"package.module.Class.attribute"``.

    Args:
        references: the pipeline's classes and functions.
        is_generator: returns whether instances of a class are generators.
    """
    roots = [(home_of(value), value) for value in references]

    def is_opened(value: Any) -> bool:
        # A generator's own bit generator is seeded with it.
        return not is_generator(type(value))

    generators = {}
    for path, value in walk(roots, into=is_opened, parts=_reached_from):
        if is_generator(type(value)):
            generators[path] = value
    return generators


def _reached_from(path: str, value: Any) -> Iterable[Edge]:
    """Return the objects that code leads to from a class, a function or an object, by path."""
    if isinstance(value, type):
        return _of_class(value)
    if isinstance(value, types.FunctionType):
        return _of_code(value)
    if isinstance(value, types.ModuleType):
        # Only those of its variables that code names (`_items_named`): a module holds far more.
        return ()
    if isinstance(value, _OPENED) or _is_in_reach(type(value).__module__):
        return _of_object(path, value)
    return ()


def _of_object(path: str, value: Any) -> Iterator[Edge]:
    kind = type(value)
    yield home_of(kind), kind
    for label, part in parts_of(value):
        yield path + label, part


def _of_class(kind: type) -> Iterator[Edge]:
    if not _is_in_reach(kind.__module__):
        return
    for owner in kind.__mro__:
        if not _is_in_reach(owner.__module__):
            continue
        # A list: another thread may set an attribute meanwhile.
        for name, attribute in list(vars(owner).items()):
            path = f"{owner.__module__}.{owner.__qualname__}.{name}"
            for item in _functions_of(attribute):
                yield path, item
        for base in owner.__bases__:
            yield home_of(base), base


def _functions_of(attribute: Any) -> tuple[Any, ...]:
    """Return the functions of a method or property; any other attribute as it is."""
    item = attribute
    if callable(attribute):
        item = inspect.unwrap(getattr(attribute, "__func__", attribute))
    if isinstance(item, property):
        return (item.fget, item.fset)
    return (item,)


def _of_code(function: types.FunctionType) -> Iterator[Edge]:
    module = str(function.__module__)
    if not _is_in_reach(module):
        return
    home = home_of(function)
    for label, part in parts_of_function(function):
        yield home + label, part
    variables = function.__globals__
    names = _names_in(function.__code__)
    # Sorted, because the first path to a generator decides its seed.
    for name in sorted(names & variables.keys()):
        for path, item in _items_named(name, names, variables, module):
            # A library's functions lead to all of it; only its variables are of interest.
            is_code = isinstance(item, (type, types.FunctionType))
            if _is_the_users(module) or not is_code:
                yield path, item


def _items_named(
    name: str, names: frozenset[str], variables: dict[str, Any], module: str
) -> list[Edge]:
    """Return the global of this name, by path; for a module, those of its variables in `names`."""
    item = variables[name]
    if not isinstance(item, types.ModuleType):
        return [(f"{variables.get('__name__', module)}.{name}", item)]
    attributes = vars(item)
    inner_names = sorted(names & attributes.keys())
    return [(f"{item.__name__}.{inner}", attributes[inner]) for inner in inner_names]


def home_of(value: Any) -> str:
    """Return the full name of a class or function, or of an object's class."""
    module = getattr(value, "__module__", "")
    qualname = getattr(value, "__qualname__", type(value).__qualname__)
    return f"{module}.{qualname}"


@lru_cache(maxsize=4096)
def _names_in(code: types.CodeType) -> frozenset[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names_in(constant)
    return frozenset(names)


_WITHOUT_GENERATORS = (
    "numpy",
    "torch",
    "scipy",
    "numba",
    "detaug",
    "cloudpickle",
    "builtins",
    # A pipeline in a test's module leads through them to the whole session of tests, and none of
    # their generators is a pipeline's.
    "pytest",
    "_pytest",
    "pluggy",
    "xdist",
    "hypothesis",
)


@lru_cache(maxsize=4096)
def _is_in_reach(module: str) -> bool:
    """Return whether a module may hold generators other than the global ones.

    Those of Python and the mathematics libraries do not.
    """
    top = str(module).partition(".")[0]
    if top in _WITHOUT_GENERATORS:
        return False
    return top == "__main__" or top not in sys.stdlib_module_names


def is_users_module(module: str) -> bool:
    """Return whether a module is the user's own code, and no library's nor Python's."""
    return _is_in_reach(module) and _is_the_users(module)


@lru_cache(maxsize=4096)
def _is_the_users(module: str) -> bool:
    """Return whether a module is the user's own code and no installed library."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        # A module without a file is a notebook's, or ``python -c``'s.
        return True
    return "site-packages" not in file and "dist-packages" not in file


def is_the_users_own(value: Any) -> bool:
    """Return whether it is a class or function of the user's, or an instance of such a class."""
    is_code = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
    kind = value if is_code else type(value)
    return is_users_module(str(kind.__module__))
