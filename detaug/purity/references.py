"""From objects to what they refer to: by which path something is reached, and what only references lead to.

A pickler meets everything that it copies, but knows no paths, and does not look into what copies share: class attributes,
variables of modules, closures. The two functions here do that, on the pristine pipeline and once.
"""

from __future__ import annotations

import functools
import gc
import inspect
import sys
import types
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from itertools import chain, islice
from typing import Any

import numpy as np
import torch

#: Values that hold nothing else.
_LEAVES = (
    str,
    bytes,
    bytearray,
    int,
    float,
    complex,
    type(None),
    np.generic,
    torch.dtype,
    range,
    slice,
    np.dtype,
)
#: Built-in objects that lead to the user's.
_LED_THROUGH = (
    *(dict, list, tuple, set, frozenset, deque),
    *(types.MethodType, types.BuiltinFunctionType, functools.partial),
)
_Edge = tuple[str, Any]


def paths_of(targets: Collection[Any], roots: Mapping[str, Any]) -> dict[int, str]:
    """The shortest path to each target that references lead to, by its ``id``: ``"transform.transforms[2].rng"``."""
    wanted = {id(target) for target in targets}
    found = ((id(value), path) for path, value in walk(roots.items()) if id(value) in wanted)
    return dict(islice(found, len(wanted)))


def walk(
    roots: Iterable[_Edge],
    most: int | None = None,
    into: Callable[[Any], bool] = lambda _: True,
    parts: Callable[[str, Any], Iterable[_Edge]] | None = None,
) -> Iterator[_Edge]:
    """What lies in these objects, each once and by its shortest path, the nearest first; plain values are left out.

    Args:
        most: how many objects are met, and of how many parts of one; None: all.
        into: whether the parts of an object are met.
        parts: what an object at a path leads to, by paths; None: what it holds.
    """
    parts = parts or _held_in
    seen: set[int] = set()
    alive: list[Any] = []  # what is made on the way keeps its address only while it lives
    pending: deque[_Edge] = deque(roots)
    while pending and (most is None or len(alive) < most):
        path, value = pending.popleft()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen.add(id(value))
        alive.append(value)
        yield path, value
        if into(value):
            pending.extend(islice(parts(path, value), most))


def _held_in(path: str, value: Any) -> Iterator[_Edge]:
    return ((path + label, part) for label, part in parts_of(value))


def parts_of(value: Any) -> Iterator[_Edge]:
    """What an object holds, each with how it is written in a path. Not what it shares with others of its class."""
    if isinstance(value, (type, types.ModuleType, types.CodeType, types.FrameType)):
        return
    if isinstance(value, dict):
        for number, (key, item) in enumerate(value.items()):
            yield f"[{_key(key, number)}]", item
    elif isinstance(value, (list, tuple, deque)):
        for number, item in enumerate(value):
            yield f"[{number}]", item
    elif isinstance(value, types.FunctionType):
        yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield "", value.__self__
        yield ".__func__", value.__func__
    elif isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    elif isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            yield ".flat", value.ravel().tolist()
    elif isinstance(value, types.BuiltinFunctionType):
        if not isinstance(value.__self__, (types.ModuleType, type)):
            yield ".__self__", value.__self__
    elif isinstance(value, np.random.Generator):
        yield ".bit_generator", value.bit_generator
    else:
        yield from _of_object(value)


def _of_function(function: types.FunctionType) -> Iterator[_Edge]:
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not yet set
            yield f".<{name}>", cell.cell_contents
    yield ".__defaults__", function.__defaults__
    yield ".__kwdefaults__", function.__kwdefaults__
    yield from ((f".{name}", item) for name, item in vars(function).items())


def _of_object(value: Any) -> Iterator[_Edge]:
    attributes = attributes_of(value)
    named = {id(type(value)), id(attributes)}
    for held in (attributes if isinstance(attributes, dict) else {}, slots_of(value)):
        for name, item in list(held.items()):
            named.add(id(item))
            yield f".{name}", item
    # Built-in classes (and subclasses of list and dict) hold more than that.
    for number, item in enumerate(gc.get_referents(value)):
        if id(item) not in named:
            yield f".~{number}", item


def attributes_of(value: Any) -> Any:
    """Its ``__dict__``; None where there is none. ``__getattr__`` of its class is not asked, for it may raise anything."""
    try:
        return object.__getattribute__(value, "__dict__")
    except (AttributeError, TypeError):
        return None


def slots_of(value: Any) -> dict[str, Any]:
    """Its attributes that lie in slots and are set."""
    found = {}
    kind: Any = type(value)
    for name, member in _members_of(kind):
        with suppress(AttributeError):  # not set
            found[name] = member.__get__(value)
    return found


@lru_cache(maxsize=4096)
def _members_of(kind: type) -> tuple[tuple[str, types.MemberDescriptorType], ...]:
    members = (each for owner in kind.__mro__ for each in vars(owner).items())
    return tuple(
        (name, member) for name, member in members if isinstance(member, types.MemberDescriptorType)
    )


def _key(key: Any, number: int) -> str:
    parts = key if isinstance(key, tuple) else () if key is None else (key,)
    return (
        repr(key)
        if all(isinstance(part, (str, int, float, bytes)) for part in parts)
        else f"#{number}"
    )


def shared_generators(
    references: Iterable[Any], is_generator: Callable[[type], bool]
) -> dict[str, Any]:
    """Generators that a pipeline's classes and functions lead to, and that belong to no object: attributes of classes, variables
    of modules, what functions keep. By path: ``"package.module.Class.attribute"``."""
    roots = ((home_of(value), value) for value in references)
    met = walk(roots, into=lambda value: not is_generator(type(value)), parts=_reached_from)
    return {path: value for path, value in met if is_generator(type(value))}


def _reached_from(path: str, value: Any) -> Iterable[_Edge]:
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
    return chain([(home_of(kind), kind)], _held_in(path, value))


def _of_class(kind: type) -> Iterator[_Edge]:
    for owner in kind.__mro__ if _is_in_reach(kind.__module__) else ():
        if not _is_in_reach(owner.__module__):
            continue
        for name, item in list(vars(owner).items()):
            item = inspect.unwrap(getattr(item, "__func__", item)) if callable(item) else item
            for each in (item.fget, item.fset) if isinstance(item, property) else (item,):
                yield f"{owner.__module__}.{owner.__qualname__}.{name}", each
        yield from ((home_of(base), base) for base in owner.__bases__)


def _of_code(function: types.FunctionType) -> Iterator[_Edge]:
    module = str(function.__module__)
    if not _is_in_reach(module):
        return
    home, variables = home_of(function), function.__globals__
    yield from ((home + label, part) for label, part in _of_function(function))
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
    # A pipeline in a test's module leads through them to the whole session of tests, and none of theirs is a pipeline's.
    *("pytest", "_pytest", "pluggy", "xdist", "hypothesis"),
)


@lru_cache(maxsize=4096)
def _is_in_reach(module: str) -> bool:
    """Not in Python's and the mathematics libraries' own modules: their generators are the global ones."""
    top = str(module).partition(".")[0]
    return top not in _WITHOUT_GENERATORS and (
        top not in sys.stdlib_module_names or top == "__main__"
    )


@lru_cache(maxsize=4096)
def _is_the_users(module: str) -> bool:
    """Whether a module is the user's own code and no installed library."""
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" not in file and "dist-packages" not in file


def is_the_users_own(value: Any) -> bool:
    """Whether it is a class or function of the user's own code, or an instance of such a class."""
    is_code = isinstance(value, (type, types.FunctionType, types.BuiltinFunctionType))
    module = str((value if is_code else type(value)).__module__)
    return _is_in_reach(module) and _is_the_users(module)


def variables_of(references: Iterable[Any]) -> list[_Edge]:
    """Variables of the classes and modules that a pipeline's code belongs to, libraries' left out, by path."""
    ours = [value for value in references if is_the_users_own(value)]
    homes: dict[str, Any] = {home_of(value): value for value in ours if isinstance(value, type)}
    homes |= {
        value.__module__: sys.modules[value.__module__]
        for value in ours
        if value.__module__ in sys.modules
    }
    held = ((path, each) for path, home in homes.items() for each in list(vars(home).items()))
    return [
        (f"{path}.{name}", item)
        for path, (name, item) in held
        if not (name.startswith("__") or _is_code(item))
    ]


def _is_code(item: Any) -> bool:
    return callable(item) or isinstance(item, types.ModuleType) or hasattr(type(item), "__get__")
