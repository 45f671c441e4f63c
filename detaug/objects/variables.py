"""The variables of the user's modules and classes that a pipeline's code reads.

A script's module holds far more than its pipeline reads (loop counters, the augmenter itself).
Compiled code tells which globals a function loads, which attributes and items it takes of them, and
which other functions and classes of the user's it calls. These are looked at in turn.
Libraries are left out.
"""

from __future__ import annotations

import argparse
import contextvars
import functools
import gc
import inspect
import sys
import threading
import types
import weakref
from collections import ChainMap, UserDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from configparser import RawConfigParser, SectionProxy
from contextlib import suppress
from importlib.util import resolve_name
from itertools import islice
from typing import Any, NamedTuple

from detaug.objects.attributes_in_code import (
    ANY,
    CONSTRUCTORS,
    changed_attributes,
    is_called_by_others,
)
from detaug.objects.compiled_code import (
    SUBSCRIPT,
    Read,
    codes_in,
    reads_by_text,
    reads_in,
    variables_set_in,
    writes_in,
)
from detaug.objects.names_read import NamesRead, names_in_libraries_bases
from detaug.objects.references import home_of, is_the_users_own, is_users_module
from detaug.objects.walking import (
    Edge,
    attributes_of,
    is_omegaconf,
    options_of,
    parts_of_function,
    slots_of,
)

#: Methods that are called although no code of the user's names them.
_CALLED_BY_DETAUG = ("set_epoch", "warm_up", "generate_train_batch", "get_indices", "reset")
#: How many items of a container are searched for classes and functions, and how many results of a
#: function with `functools.lru_cache` are variables.
_MOST_ITEMS = 100
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
_CACHED = type(functools.cache(len))
_PLAIN = (int, float, complex, str, bytes, type(None))
_NAMESPACES = (argparse.Namespace, types.SimpleNamespace)


class _Variable(NamedTuple):
    """The value that a read leads to; `path` is that of the last step that could be followed."""

    path: str
    value: Any


def variables_of(references: Iterable[Any], written: bool = True) -> list[Edge]:
    """Return the variables that a pipeline's code reads, by path: ``"package.module.NAME"``.

    Args:
        references: the pipeline's classes and functions.
        written: also those that its code writes itself, other than in constructors, and what its
            functions keep in closures and defaults.
    """
    search = _Search()
    search.look_at(references)
    if written:
        return [*search.variables.items(), *search.kept_by_functions.items()]
    written_paths = set(search.written())
    settings = []
    for path, value in search.variables.items():
        if not lies_in(path, written_paths):
            settings.append((path, value))
        elif is_the_users_own(value) or isinstance(value, _NAMESPACES):
            # As `if SETTINGS is None: SETTINGS = Settings()`: it is made once.
            settings.extend(_constants_of(path, value))
    return settings


def lies_in(path: str, variables: Collection[str]) -> bool:
    """Return whether a path is that of a variable, or of a part of one."""
    for name in variables:
        if path == name or path.startswith((f"{name}.", f"{name}[")):
            return True
    return False


def has_settings(kind: type) -> bool:
    """Return whether objects of a class may have a program's settings as attributes."""
    return is_the_users_own(kind) or issubclass(kind, _NAMESPACES) or is_omegaconf(kind)


class PipelineCode:
    """The code of a pipeline. The names in it are looked for when they are first needed.

    Args:
        references: the pipeline's classes and functions, and modules that its objects have.
    """

    def __init__(self, references: Iterable[Any]) -> None:
        self.references = list(references)

    def __contains__(self, name: str) -> bool:
        """Return whether code other than constructors has a name."""
        return name in self._search.names_in_code

    def may_read(self, kind: type, attribute: str) -> bool:
        """Return whether code that makes batches may read an attribute of a class's objects."""
        of_bases = names_in_libraries_bases(kind)
        if self._read is None or of_bases is None:
            return True
        return attribute in self._read or attribute in of_bases

    @functools.cached_property
    def _read(self) -> frozenset[str] | None:
        return self._search.names_read.names()

    @functools.cached_property
    def _search(self) -> _Search:
        search = _Search()
        search.look_at(self.references)
        return search


class _Search:
    """A search through a pipeline's code, from function to function."""

    def __init__(self) -> None:
        #: By path.
        self.variables: dict[str, Any] = {}
        #: The values in functions' closures and defaults, by path.
        self.kept_by_functions: dict[str, Any] = {}
        self._pending: deque[Any] = deque()
        self._met: set[int] = set()
        #: Paths that are written, by the name of the method that does; "" for functions.
        self._writes: list[tuple[str, str]] = []
        #: The names in all code but constructors.
        self.names_in_code: set[str] = set(_CALLED_BY_DETAUG)
        self.names_read = NamesRead(_CALLED_BY_DETAUG)
        #: Variables of closures by their path, and the ids of those that some function sets.
        self._cells: dict[str, types.CellType] = {}
        self._written_cells: set[int] = set()

    def look_at(self, references: Iterable[Any]) -> None:
        """Find all variables that these classes and functions lead to."""
        modules = []
        for value in references:
            self._add(value)
            if isinstance(value, types.ModuleType) and is_users_module(value.__name__):
                modules.append(value)
        self._look_at_code()
        for module in modules:
            self._look_at_module(module)
        self._look_at_code()
        for path, cell in self._cells.items():
            # Counters and caches of closures are set by the closures themselves.
            if id(cell) in self._written_cells:
                continue
            # A variable of the closure may not be set yet.
            with suppress(ValueError):
                if _is_constant(cell.cell_contents):
                    self.variables[path] = cell.cell_contents

    def _look_at_code(self) -> None:
        # A queue, because chains of calls may be longer than Python's recursion limit.
        while self._pending:
            value = self._pending.popleft()
            if isinstance(value, type):
                self._look_at_class(value)
            else:
                self._look_at_function(value)

    def _look_at_module(self, module: types.ModuleType) -> None:
        """Add the variables of a module that code reads as attributes of an object's attribute.

        As in ``self.config.STRENGTH``.
        """
        for name, value in list(vars(module).items()):
            if name not in self.names_in_code or name.startswith("__"):
                continue
            if _is_code(value):
                self._add(value)
            else:
                self._add_variable(f"{module.__name__}.{name}", value)

    def written(self) -> Iterator[str]:
        """Yield the paths of the variables that the code writes while it makes batches.

        A method that no code of the pipeline's calls is for the program: the variables that it
        writes are settings.
        """
        for method, path in self._writes:
            if not method or method in self.names_in_code:
                yield path

    def _add(self, value: Any, is_method: bool = False) -> None:
        """Look at a class or function of the user's, unless that was done.

        Args:
            value: the class or function, or what leads to one.
            is_method: it is found in its class, so that it is called only if something names it.
        """
        if isinstance(value, (types.MethodType, staticmethod, classmethod)):
            value = value.__func__
        if isinstance(value, functools.partial):
            value = value.func
        if isinstance(value, _CACHED):
            self._add_results(value)
        if not isinstance(value, (type, types.FunctionType)):
            # Of functools' caches and Numba's dispatchers; without the object's own `__getattr__`,
            # which may raise anything.
            wrapped = inspect.getattr_static(value, "__wrapped__", None)
            value = wrapped or inspect.getattr_static(value, "py_func", None)
        if not isinstance(value, (type, types.FunctionType)) or not is_the_users_own(value):
            return
        if isinstance(value, types.FunctionType) and not is_method:
            self.names_read.add_function(value)
        if id(value) not in self._met:
            self._met.add(id(value))
            self._pending.append(value)

    def _add_results(self, function: Any) -> None:
        """Add the results that a function with `functools.lru_cache` keeps."""
        if id(function) in self._met or not is_the_users_own(function.__wrapped__):
            return
        self._met.add(id(function))
        for arguments, result in _kept_results(function):
            self._add_variable(f"{home_of(function)}({arguments})", result)

    def _add_variable(self, path: str, value: Any) -> None:
        """Add a variable, and look at the classes and functions that it leads to."""
        if isinstance(value, weakref.ReferenceType):
            path = f"{path}()"
            value = value()
        elif isinstance(value, contextvars.ContextVar):
            path = f"{path}.get()"
            value = value.get(None)
        self.variables[path] = value
        self._add_single_objects(value)
        self.names_read.add_variable(value)
        for item in _with_items(value):
            self._add(item)
            self._add(type(item))

    def _add_single_objects(self, value: Any) -> None:
        """Add the constants of objects that a dict has by their classes: each is the only one."""
        if not isinstance(value, dict):
            return
        for kind, item in list(islice(dict.items(value), _MOST_ITEMS)):
            if isinstance(kind, type) and type(item) is kind and is_the_users_own(kind):
                self.variables.update(_constants_of(f"{home_of(kind)}()", item))

    def _look_at_class(self, kind: type) -> None:
        for base in kind.__bases__:
            self._add(base)
        self._add(type(kind))
        # What else a metaclass has is mostly a register of its classes, which grows with imports.
        is_metaclass = issubclass(kind, type)
        for name, item in list(vars(kind).items()):
            if _is_code(item):
                self._add(item, is_method=True)
                self._add_name_of(item, f"{home_of(kind)}.{name}", name)
                # Of a descriptor of the user's the code of its class is called.
                self._add(type(item))
                for function in _functions_of(item):
                    self._look_at_method(kind, name, function)
            elif not name.startswith("__") and (not is_metaclass or isinstance(item, _PLAIN)):
                self._add_variable(f"{home_of(kind)}.{name}", item)
            else:
                self._add_single_objects(item)

    def _look_at_method(self, kind: type, name: str, function: types.FunctionType) -> None:
        self._add(function, is_method=True)
        is_called = is_called_by_others(kind, name)
        self.names_read.add_method(function, name, is_called)
        if name in CONSTRUCTORS:
            return
        if is_called:
            self.names_in_code.add(name)
        for read in writes_in(function.__code__).of_owner:
            owner = _owner_of(kind, read.steps[0][1])
            if owner is not None:
                self._writes.append((name, f"{home_of(owner)}.{read.steps[0][1]}"))

    def _look_at_function(self, function: types.FunctionType) -> None:
        self._add(getattr(function, "__wrapped__", None))
        self._add(function.__globals__.get("__getattr__"))
        for label, part in parts_of_function(function):
            for item in _with_items(part):
                self._add(item)
            self._add_single_objects(part)
            if part is not None and not _is_code(part):
                self.kept_by_functions[f"{home_of(function)}{label}"] = part
        self._add_constants_kept_by(function)
        name = function.__name__
        is_constructor = name in CONSTRUCTORS
        # "Class.method"; that of a function in a function is "outer.<locals>.inner".
        holder = function.__qualname__.rpartition(".")[0]
        is_method = holder.rpartition(".")[2].isidentifier()
        for code in codes_in(function.__code__):
            if not is_constructor:
                # A method counts as called if any code names it, since code does not show the
                # class. Its own name is left out: a recursive call does not count.
                self.names_in_code.update(set(code.co_names) - {name})
                for read in writes_in(code).of_globals:
                    path = self._followed(read, function).path
                    self._writes.append((name if is_method else "", path))
            for read in (*reads_in(code), *reads_by_text(code, function)):
                self._follow(read, function)

    def _add_constants_kept_by(self, function: types.FunctionType) -> None:
        """Add the defaults of a function and the variables of its closure, if they are constants.

        They may have been drawn when the module was imported.
        """
        home = home_of(function)
        for label, default in _defaults_of(function):
            if _is_constant(default):
                self.variables.setdefault(f"{home}{label}", default)
        names = function.__code__.co_freevars
        cells = dict(zip(names, function.__closure__ or (), strict=True))
        for name, cell in cells.items():
            # Another function of the same name may keep another value; the first one counts.
            self._cells.setdefault(f"{home}.<{name}>", cell)
        for code in codes_in(function.__code__):
            for name in variables_set_in(code) & cells.keys():
                self._written_cells.add(id(cells[name]))

    def _follow(self, read: Read, function: types.FunctionType) -> None:
        """Add the variable that a read leads to; if that is code, look at it instead."""
        for number in range(len(read.steps)):
            # As of `PRESET` in `PRESET.strength`.
            self._add_choice(read._replace(steps=read.steps[:number]), function)
        path, value = self._followed(read, function)
        if not path:
            return
        if _is_code(value):
            self._add(value)
            self._add_choice(read, function)
            return
        self._add_variable(path, value)

    def _add_choice(self, read: Read, function: types.FunctionType) -> None:
        """Add the name of the function, class or module that a variable stands for."""
        path, value = self._followed(read, function)
        name = read.root
        if read.steps:
            name = read.steps[-1][1]
        if path:
            self._add_name_of(value, path, name)

    def _add_name_of(self, value: Any, path: str, variable: str) -> None:
        """Add the name of a function, class or module, if the variable is not called like it."""
        if isinstance(value, _NAMED) and value.__name__ != variable:
            self.variables[f"{path}.__qualname__"] = value.__qualname__
        if isinstance(value, types.ModuleType) and is_users_module(value.__name__):
            if value.__name__.rpartition(".")[2] != variable:
                self.variables[f"{path}.__name__"] = value.__name__

    def _followed(self, read: Read, function: types.FunctionType) -> _Variable:
        """Return the value that a read leads to; the path is empty if that is a library's."""
        path, value = self._root_of(read, function)
        for kind, name in read.steps:
            if isinstance(value, types.ModuleType):
                if not is_users_module(value.__name__):
                    return _Variable("", None)
                path = f"{value.__name__}.{name}"
                if name not in vars(value):
                    self._add(vars(value).get("__getattr__"))
                value = vars(value).get(name)
                continue
            if isinstance(value, type) and kind != SUBSCRIPT:
                owner = _owner_of(value, name)
                if owner is None or _is_code(vars(owner)[name]):
                    break
                path = f"{home_of(owner)}.{name}"
                value = vars(owner)[name]
                continue
            if kind == SUBSCRIPT:
                holder = _items_of(value)
                label = f"[{name!r}]"
            else:
                holder = _attributes_of(value)
                label = f".{name}"
            if name not in holder:
                # It is a method, a property, or an attribute of the class.
                break
            value = holder[name]
            path += label
        return _Variable(path, value)

    def _root_of(self, read: Read, function: types.FunctionType) -> _Variable:
        variables = function.__globals__
        if read.is_module:
            path = _absolute_name(read, variables)
            return _Variable(path, sys.modules.get(path))
        module = str(variables.get("__name__", function.__module__))
        return _Variable(f"{module}.{read.root}", variables.get(read.root))


def _with_items(value: Any) -> list[Any]:
    """Return a value, and the first items if it is a container."""
    items: Iterable[Any] = ()
    if isinstance(value, dict):
        items = dict.values(value)
    elif isinstance(value, types.MappingProxyType):
        # The functions of `functools.singledispatch`.
        items = value.values()
    elif isinstance(value, (list, tuple)):
        items = value
    return [value, *islice(items, _MOST_ITEMS)]


def _functions_of(item: Any) -> list[types.FunctionType]:
    """Return the functions of a class's attribute: a method, a property, another descriptor.

    Of a function that wraps another both.
    """
    found = [getattr(item, "__func__", item)]
    if isinstance(item, property):
        found = [item.fget, item.fset]
    elif not isinstance(found[0], (type, types.FunctionType)):
        # As `functools.cached_property` and `functools.singledispatchmethod` keep theirs.
        found = list(_attributes_of(item).values())
    functions = []
    for value in found:
        if isinstance(value, types.FunctionType):
            functions.append(value)
            inner = inspect.unwrap(value)
            if inner is not value and isinstance(inner, types.FunctionType):
                functions.append(inner)
    return functions


def _constants_of(path: str, value: Any) -> Iterator[Edge]:
    """Yield the numbers and texts in an object's attributes that no method of its class sets."""
    kind: Any = type(value)
    is_set, _ = changed_attributes(kind)
    if ANY in is_set:
        return
    for name, item in _attributes_of(value).items():
        if name not in is_set and _is_constant(item):
            yield f"{path}.{name}", item


def _owner_of(kind: type, name: str) -> type | None:
    """Return the user's class that has a class's attribute; None if none has."""
    for owner in kind.__mro__:
        if name in vars(owner):
            if is_the_users_own(owner):
                return owner
            return None
    return None


def _items_of(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, (dict, ChainMap, UserDict)):
        return value
    if isinstance(value, (RawConfigParser, SectionProxy)):
        return options_of(value)
    if isinstance(value, (list, tuple)):
        return dict(enumerate(value))
    return {}


def _attributes_of(value: Any) -> Mapping[Any, Any]:
    # Attributes of classes are read from the class that owns them (`_owner_of`).
    if isinstance(value, type):
        return {}
    if isinstance(value, threading.local):
        return vars(value)
    attributes = attributes_of(value)
    if not isinstance(attributes, dict):
        return slots_of(value)
    return {**slots_of(value), **attributes}


def _kept_results(function: Any) -> Iterator[tuple[str, Any]]:
    """Yield the results that a function with `functools.lru_cache` keeps, by the arguments' text.

    Of calls with arguments only results that are data: an object may go on changing. A call
    without arguments returns the one object of its kind: settings, for example.
    """
    # It has no method that returns them. The dict comes before the function. If its size is
    # limited, it holds links, and the results are the referents that follow the keys.
    referents = gc.get_referents(function)
    indices = {id(part): index for index, part in enumerate(referents)}
    results = referents[indices.get(id(function.__wrapped__), 0) - 1]
    if not isinstance(results, dict):
        return
    for key, kept in islice(results.items(), _MOST_ITEMS):
        result = kept
        if id(key) in indices:
            result = referents[indices[id(key)] + 1]
        if key == () and not _is_code(result):
            yield "", result
        elif _has_text(key) and _is_data(result):
            yield repr(key), result


def _defaults_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    for index, default in enumerate(function.__defaults__ or ()):
        yield f".__defaults__[{index}]", default
    for name, default in (function.__kwdefaults__ or {}).items():
        yield f".__kwdefaults__[{name!r}]", default


def _is_constant(value: Any) -> bool:
    """Return whether a value is a number or text, or a tuple of these: no cache, no memory."""
    if isinstance(value, tuple):
        return all(map(_is_constant, value))
    return isinstance(value, _PLAIN)


def _is_data(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(map(_is_data, value[:_MOST_ITEMS]))
    # Arrays and tensors have a dtype.
    return isinstance(value, _PLAIN) or hasattr(type(value), "dtype")


def _has_text(key: Any) -> bool:
    """Return whether a cache's key has the same text in every program."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(isinstance(part, (int, float, str, bytes, type(None))) for part in parts)


def _absolute_name(read: Read, variables: Mapping[str, Any]) -> str:
    if not read.level:
        return read.root
    package = str(variables.get("__package__") or "")
    try:
        return resolve_name("." * read.level + read.root, package)
    except ImportError:
        return ""


def _is_code(item: Any) -> bool:
    """Return whether a variable is a function, a class, a module or a descriptor, and no value."""
    if isinstance(item, (functools.partial, types.MethodType)):
        return False
    is_function = isinstance(item, (type, types.ModuleType, types.BuiltinFunctionType))
    return is_function or hasattr(type(item), "__get__")
