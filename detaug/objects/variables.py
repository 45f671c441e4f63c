"""The variables of the user's modules and classes that a pipeline's code reads.

A script's module holds far more than its pipeline reads (loop counters, the augmenter itself), so
that the compiled code is asked: which globals a function loads, which attributes and items it takes
of them, and which other functions and classes of the user's it calls, which are looked at in turn.
Libraries are left out.
"""

from __future__ import annotations

import contextvars
import dis
import functools
import gc
import inspect
import sys
import threading
import types
import weakref
from collections import ChainMap, UserDict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from importlib.util import resolve_name
from itertools import islice, pairwise
from typing import Any, NamedTuple

from detaug.objects.references import home_of, is_the_users_own, is_users_module
from detaug.objects.walking import Edge, attributes_of, parts_of_function, slots_of

_SUBSCRIPT = "[]"
#: These run before a pipeline is taken: what they write is as much a setting as what a module
#: writes.
_CONSTRUCTORS = ("__init__", "__new__", "__post_init__", "__init_subclass__", "__set_name__")
#: Methods that are called although no code of the user's names them.
_CALLED_BY_DETAUG = ("set_epoch", "warm_up", "generate_train_batch", "get_indices", "reset")
#: Methods that change the container or object that they belong to.
_CHANGING = frozenset(
    (
        "add",
        "append",
        "appendleft",
        "clear",
        "discard",
        "extend",
        "insert",
        "move_to_end",
        "pop",
        "popitem",
        "popleft",
        "put",
        "remove",
        "set",
        "setdefault",
        "sort",
        "update",
    )
)
#: Names of code that may set any attribute.
_SETTING_ANY = frozenset(("setattr", "__setattr__", "__dict__", "vars"))
#: Stands for all attributes.
ANY = "*"
#: Functions of NumPy and torch that return memory as it was.
_UNINITIALISED = ("empty", "empty_like")
_LOADS_OF_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD")
#: Methods that write all of an array.
_OVERWRITING = ("copy_", "fill", "fill_", "zero_")
#: How many items of a container are searched for classes and functions, and how many results of a
#: function with `functools.lru_cache` are variables.
_MOST_ITEMS = 100
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType)
_CACHED = type(functools.cache(len))
_PLAIN = (int, float, complex, str, bytes, type(None))


class _Read(NamedTuple):
    """A read of a global or of an imported module, with the attributes and items that are taken.

    Attributes:
        root: the name of the global, or of the module.
        is_module: it is a module's name.
        level: of a relative import; 0 of an absolute one.
        steps: attributes ``(".", name)`` and items ``("[]", key)``, in order.
    """

    root: str
    is_module: bool
    level: int
    steps: tuple[tuple[str, Any], ...]


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
    return settings


def lies_in(path: str, variables: Collection[str]) -> bool:
    """Return whether a path is that of a variable, or of a part of one."""
    for name in variables:
        if path == name or path.startswith((f"{name}.", f"{name}[")):
            return True
    return False


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
        if name in _CONSTRUCTORS:
            continue
        for function in functions:
            for attribute in _overwritten_in(function.__code__):
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
    pending = list(_CONSTRUCTORS)
    met: set[str] = set()
    while pending:
        name = pending.pop()
        if name in met:
            continue
        met.add(name)
        for function in functions.get(name, ()):
            pending.extend(function.__code__.co_names)
            for code in _codes_in(function.__code__):
                instructions = _instructions(code)
                empty.update(_set_to_empty(instructions))
                read.update(_attributes_loaded(instructions))
    readers: dict[str, frozenset[str]] = {}
    for attribute in empty - read:
        methods = {
            name
            for name in functions
            if any(attribute in function.__code__.co_names for function in functions[name])
        }
        methods -= set(_CONSTRUCTORS)
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
        if name in _CONSTRUCTORS:
            continue
        for function in functions:
            for code in _codes_in(function.__code__):
                if is_the_users_own(function) and not _SETTING_ANY.isdisjoint(code.co_names):
                    is_set.setdefault(ANY, set()).add(name)
                for instruction in _instructions(code):
                    if instruction.opname in ("STORE_ATTR", "DELETE_ATTR"):
                        is_set.setdefault(instruction.argval, set()).add(name)
                written = [read.steps[0][1] for read in _writes_in(code).of_owner]
                for attribute in (*written, *_overwritten_in(code)):
                    is_written.setdefault(attribute, set()).add(name)
    return is_set, is_written


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


def names_in_code(references: Iterable[Any]) -> frozenset[str]:
    """Return the names in a pipeline's code, except in constructors.

    Args:
        references: the pipeline's classes and functions.
    """
    search = _Search()
    search.look_at(references)
    return frozenset(search.names_in_code)


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
        #: Variables of closures by their path, and the ids of those that some function sets.
        self._cells: dict[str, types.CellType] = {}
        self._written_cells: set[int] = set()

    def look_at(self, references: Iterable[Any]) -> None:
        """Find all variables that these classes and functions lead to."""
        for value in references:
            self._add(value)
        # A queue, because chains of calls may be longer than Python's recursion limit.
        while self._pending:
            value = self._pending.popleft()
            if isinstance(value, type):
                self._look_at_class(value)
            else:
                self._look_at_function(value)
        for path, cell in self._cells.items():
            # Counters and caches of closures are set by the closures themselves.
            if id(cell) in self._written_cells:
                continue
            # A variable of the closure may not be set yet.
            with suppress(ValueError):
                if _is_constant(cell.cell_contents):
                    self.variables[path] = cell.cell_contents

    def written(self) -> Iterator[str]:
        """Yield the paths of the variables that the code writes while it makes batches.

        A method that no code of the pipeline's calls is for the program: the variables that it
        writes are settings.
        """
        for method, path in self._writes:
            if not method or method in self.names_in_code:
                yield path

    def _add(self, value: Any) -> None:
        """Look at a class or function of the user's, unless that was done."""
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
        if not isinstance(value, (type, types.FunctionType)):
            return
        if id(value) not in self._met and is_the_users_own(value):
            self._met.add(id(value))
            self._pending.append(value)

    def _add_results(self, function: Any) -> None:
        """Add the results that a function with `functools.lru_cache` keeps, if they are data."""
        if id(function) in self._met or not is_the_users_own(function.__wrapped__):
            return
        self._met.add(id(function))
        for key, result in _kept_results(function):
            self.variables[f"{home_of(function)}({key})"] = result

    def _add_variable(self, path: str, value: Any) -> None:
        """Add a variable, and look at the classes and functions that it leads to."""
        if isinstance(value, weakref.ReferenceType):
            path = f"{path}()"
            value = value()
        elif isinstance(value, contextvars.ContextVar):
            path = f"{path}.get()"
            value = value.get(None)
        self.variables[path] = value
        items: Iterable[Any] = ()
        if isinstance(value, dict):
            items = value.values()
        elif isinstance(value, (list, tuple)):
            items = value
        for item in (value, *islice(items, _MOST_ITEMS)):
            self._add(item)
            self._add(type(item))

    def _look_at_class(self, kind: type) -> None:
        for base in kind.__bases__:
            self._add(base)
        self._add(type(kind))
        # What else a metaclass has is mostly a register of its classes, which grows with imports.
        is_metaclass = issubclass(kind, type)
        for name, item in list(vars(kind).items()):
            if isinstance(item, property):
                for accessor in (item.fget, item.fset):
                    self._look_at_method(kind, name, accessor)
            elif _is_code(item):
                function = inspect.unwrap(getattr(item, "__func__", item))
                self._add(item)
                # Of a descriptor of the user's the code of its class is called.
                self._add(type(item))
                self._look_at_method(kind, name, function)
            elif not name.startswith("__") and (not is_metaclass or isinstance(item, _PLAIN)):
                self._add_variable(f"{home_of(kind)}.{name}", item)

    def _look_at_method(self, kind: type, name: str, function: Any) -> None:
        self._add(function)
        if not isinstance(function, types.FunctionType) or name in _CONSTRUCTORS:
            return
        if is_called_by_others(kind, name):
            self.names_in_code.add(name)
        for read in _writes_in(function.__code__).of_owner:
            owner = _owner_of(kind, read.steps[0][1])
            if owner is not None:
                self._writes.append((name, f"{home_of(owner)}.{read.steps[0][1]}"))

    def _look_at_function(self, function: types.FunctionType) -> None:
        self._add(getattr(function, "__wrapped__", None))
        self._add(function.__globals__.get("__getattr__"))
        for label, part in parts_of_function(function):
            self._add(part)
            if part is not None and not _is_code(part):
                self.kept_by_functions[f"{home_of(function)}{label}"] = part
        self._add_constants_kept_by(function)
        name = function.__name__
        is_constructor = name in _CONSTRUCTORS
        # "Class.method"; that of a function in a function is "outer.<locals>.inner".
        holder = function.__qualname__.rpartition(".")[0]
        is_method = holder.rpartition(".")[2].isidentifier()
        for code in _codes_in(function.__code__):
            if not is_constructor:
                # A method counts as called if any code names it, since code does not show the
                # class. Its own name is left out: a recursive call does not count.
                self.names_in_code.update(set(code.co_names) - {name})
                for read in _writes_in(code).of_globals:
                    path = self._followed(read, function).path
                    self._writes.append((name if is_method else "", path))
            for read in (*_reads_in(code), *_reads_by_text(code, function)):
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
        for code in _codes_in(function.__code__):
            for name in _variables_set_in(code) & cells.keys():
                self._written_cells.add(id(cells[name]))

    def _follow(self, read: _Read, function: types.FunctionType) -> None:
        """Add the variable that a read leads to; if that is code, look at it instead."""
        path, value = self._followed(read, function)
        if not path:
            return
        if _is_code(value):
            self._add(value)
            name = read.root
            if read.steps:
                name = read.steps[-1][1]
            if isinstance(value, _NAMED) and value.__name__ != name:
                # A variable that says which function or class is used.
                self.variables[f"{path}.__qualname__"] = value.__qualname__
            return
        self._add_variable(path, value)

    def _followed(self, read: _Read, function: types.FunctionType) -> _Variable:
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
            if isinstance(value, type) and kind != _SUBSCRIPT:
                owner = _owner_of(value, name)
                if owner is None or _is_code(vars(owner)[name]):
                    break
                path = f"{home_of(owner)}.{name}"
                value = vars(owner)[name]
                continue
            if kind == _SUBSCRIPT:
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

    def _root_of(self, read: _Read, function: types.FunctionType) -> _Variable:
        variables = function.__globals__
        if read.is_module:
            path = _absolute_name(read, variables)
            return _Variable(path, sys.modules.get(path))
        module = str(variables.get("__name__", function.__module__))
        return _Variable(f"{module}.{read.root}", variables.get(read.root))


def _owner_of(kind: type, name: str) -> type | None:
    """Return the user's class that has a class's attribute; None if none has."""
    for owner in kind.__mro__:
        if name in vars(owner):
            if is_the_users_own(owner):
                return owner
            return None
    return None


def is_called_by_others(kind: type, name: str) -> bool:
    """Return whether Python or a library calls a method, even if no code of the user's names it."""
    return name.startswith("__") or _is_of_library(kind, name)


def _is_of_library(kind: type, name: str) -> bool:
    """Return whether a method takes the place of a library's, which calls it."""
    libraries = [base for base in kind.__mro__ if not is_the_users_own(base)]
    return any(name in vars(base) for base in libraries)


def _items_of(value: Any) -> Mapping[Any, Any]:
    if isinstance(value, (dict, ChainMap, UserDict)):
        return value
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

    Only results that are data: an object may go on changing.
    """
    # It has no method that returns them. If its size is limited, the dict holds links, and the
    # results are the referents that follow the keys.
    referents = gc.get_referents(function)
    indices = {id(part): index for index, part in enumerate(referents)}
    for part in referents:
        if not isinstance(part, dict) or part is vars(function):
            continue
        for key, kept in islice(part.items(), _MOST_ITEMS):
            result = kept
            if id(key) in indices:
                result = referents[indices[id(key)] + 1]
            if _has_text(key) and _is_data(result):
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


def _absolute_name(read: _Read, variables: Mapping[str, Any]) -> str:
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


# --- compiled code


class _Writes(NamedTuple):
    """The variables that a function writes.

    Attributes:
        of_globals: globals, and values in them.
        of_owner: values in attributes of its first argument.
    """

    of_globals: tuple[_Read, ...]
    of_owner: tuple[_Read, ...]


def _codes_in(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes_in(constant)


@lru_cache(maxsize=4096)
def _variables_set_in(code: types.CodeType) -> frozenset[str]:
    """Return the variables of the closure that compiled code sets."""
    names = set()
    for instruction in _instructions(code):
        if instruction.opname in ("STORE_DEREF", "DELETE_DEREF"):
            names.add(instruction.argval)
    return frozenset(names)


@lru_cache(maxsize=4096)
def _reads_in(code: types.CodeType) -> tuple[_Read, ...]:
    """Return the reads of globals, and of modules that it imports, in compiled code."""
    return tuple(read for read, _ in _loads_in(_instructions(code)))


@lru_cache(maxsize=4096)
def _writes_in(code: types.CodeType) -> _Writes:
    """Return the writes in compiled code."""
    instructions = _instructions(code)
    of_globals = []
    for instruction in instructions:
        if instruction.opname == "STORE_GLOBAL":
            of_globals.append(_Read(instruction.argval, False, 0, ()))
    for read, end in _loads_in(instructions):
        target = _target(read, instructions, end)
        if target is not None:
            of_globals.append(target)
    of_owner = []
    owner = code.co_varnames[0] if code.co_argcount else None
    for index, instruction in enumerate(instructions):
        if owner is not None and _loaded_variable(instruction) == owner:
            steps, end = _steps_in(instructions, index + 1)
            read = _Read(str(owner), False, 0, steps)
            target = _target(read, instructions, end)
            # An attribute that is set is the object's own, and not its class's.
            if target is not None and target.steps and not _is_set(instructions, end):
                of_owner.append(target)
    return _Writes(tuple(of_globals), tuple(of_owner))


def _overwritten_in(code: types.CodeType) -> Iterator[str]:
    """Yield the attributes of the first argument whose whole contents compiled code writes."""
    owner = code.co_varnames[0] if code.co_argcount else None
    instructions = _instructions(code)
    for index, instruction in enumerate(instructions):
        is_owner = owner is not None and _loaded_variable(instruction) == owner
        if not is_owner or index + 1 == len(instructions):
            continue
        attribute = instructions[index + 1]
        # `_overwrites` looks at four instructions at most.
        following = instructions[index + 2 : index + 6]
        if attribute.opname == "LOAD_ATTR" and _overwrites(code, following):
            yield attribute.argval


def _set_to_empty(instructions: list[dis.Instruction]) -> Iterator[str]:
    """Yield the attributes that ``self.name = numpy.empty(...)`` and its like set."""
    #: The instructions of the statement so far.
    statement: list[dis.Instruction] = []
    for instruction in instructions:
        if not instruction.opname.startswith(("STORE_", "POP_TOP", "RESUME")):
            statement.append(instruction)
            continue
        if instruction.opname == "STORE_ATTR" and _is_call_of_empty(statement):
            yield instruction.argval
        statement = []


def _is_call_of_empty(statement: list[dis.Instruction]) -> bool:
    """Return whether a statement loads what a call of ``empty`` returns, and then an object."""
    loads = [step for step in statement if step.opname not in ("PUSH_NULL", "PRECALL", "KW_NAMES")]
    if len(loads) < 4 or not loads[-1].opname.startswith("LOAD_FAST"):
        return False
    if not loads[-2].opname.startswith("CALL"):
        return False
    for step, following in pairwise(loads):
        if step.opname.startswith("CALL") and following.opname in _LOADS_OF_ATTRIBUTES:
            # A method of the array is called.
            return False
    # `np.empty(...)`, or `empty(...)` after `from numpy import empty`.
    called = loads[0]
    if loads[1].opname in _LOADS_OF_ATTRIBUTES:
        called = loads[1]
    return called.argval in _UNINITIALISED


def _attributes_loaded(instructions: list[dis.Instruction]) -> Iterator[str]:
    for instruction in instructions:
        if instruction.opname in _LOADS_OF_ATTRIBUTES:
            yield instruction.argval


def _overwrites(code: types.CodeType, following: list[dis.Instruction]) -> bool:
    """Return whether instructions write the whole contents of the array that was loaded before."""
    names = [instruction.opname for instruction in following]
    if not names:
        return False
    first = following[0].argval
    if names[0] in ("LOAD_ATTR", "LOAD_METHOD"):
        return first in _OVERWRITING
    if names[0] == "KW_NAMES" or names[1:2] == ["CALL_KW"]:
        # It is the value of the last keyword. Python 3.11 does not show KW_NAMES' argument.
        keywords = code.co_consts[following[0].arg or 0]
        return isinstance(keywords, tuple) and keywords[-1:] == ("out",)
    if names[:2] == ["LOAD_CONST", "STORE_SUBSCR"]:
        return first in (Ellipsis, slice(None))
    # `array[:] = x` loads None twice, and stores by one instruction from Python 3.12 on, by two
    # before.
    constants = [instruction.argval for instruction in following[:2]]
    if constants != [None, None]:
        return False
    return names[2:3] == ["STORE_SLICE"] or names[2:4] == ["BUILD_SLICE", "STORE_SUBSCR"]


def _reads_by_text(code: types.CodeType, function: types.FunctionType) -> Iterator[_Read]:
    """Yield reads of globals and modules' variables that code names by a text.

    ``globals()["NAME"]``, ``getattr(module, "NAME")``.
    """
    texts = [constant for constant in code.co_consts if isinstance(constant, str)]
    variables = function.__globals__
    if "globals" in code.co_names:
        for text in texts:
            if text in variables:
                yield _Read(text, False, 0, ())
    if "getattr" not in code.co_names:
        return
    for read in _reads_in(code):
        module = None if read.is_module or read.steps else variables.get(read.root)
        if not isinstance(module, types.ModuleType):
            continue
        for text in texts:
            if text in vars(module):
                yield read._replace(steps=((".", text),))


def _instructions(code: types.CodeType) -> list[dis.Instruction]:
    return [step for step in dis.get_instructions(code) if step.opname != "CACHE"]


def _loads_in(instructions: list[dis.Instruction]) -> Iterator[tuple[_Read, int]]:
    """Yield each load of a global or imported module, and the index of the instruction after it."""
    imported: dict[str, _Read] = {}
    for index, instruction in enumerate(instructions):
        name = instruction.opname
        argument = instruction.argval
        if name in ("LOAD_GLOBAL", "LOAD_NAME"):
            steps, end = _steps_in(instructions, index + 1)
            yield _Read(argument, False, 0, steps), end
        elif name == "IMPORT_NAME":
            # Two instructions before it load the level of a relative import and the names.
            level = instructions[index - 2].argval
            imported.update(_imported_by(argument, level, instructions[index + 1 :]))
        elif name.startswith("LOAD_FAST"):
            variable = _loaded_variable(instruction)
            if variable in imported:
                read = imported[variable]
                steps, end = _steps_in(instructions, index + 1)
                yield read._replace(steps=(*read.steps, *steps)), end


def _loaded_variable(instruction: dis.Instruction) -> str:
    """Return the local variable that an instruction loads; empty if it loads none.

    Of a pair of loads in one instruction (Python 3.13) it is the last, of which attributes are
    taken.
    """
    if not instruction.opname.startswith("LOAD_FAST"):
        return ""
    if isinstance(instruction.argval, tuple):
        return str(instruction.argval[-1])
    return str(instruction.argval)


def _is_set(instructions: list[dis.Instruction], index: int) -> bool:
    return index < len(instructions) and instructions[index].opname == "STORE_ATTR"


def _target(read: _Read, instructions: list[dis.Instruction], index: int) -> _Read | None:
    """Return the part of a value, loaded before an instruction, that is written; or None."""
    if _is_set(instructions, index):
        attribute = (".", instructions[index].argval)
        return read._replace(steps=(*read.steps, attribute))
    # A method that changes its object is called, as in `CACHE.append(x)`.
    if read.steps and read.steps[-1][1] in _CHANGING:
        return read._replace(steps=read.steps[:-1])
    if _is_item_set(instructions, index):
        return read
    return None


def _is_item_set(instructions: list[dis.Instruction], index: int) -> bool:
    """Return whether an item of the value that was loaded before an instruction is set.

    When the item is stored the value is on the stack, and the key above it.
    """
    depth = 1
    for instruction in instructions[index:]:
        if instruction.opname == "STORE_SUBSCR":
            return depth == 2
        is_pair_copied = instruction.opname == "COPY" and instruction.arg == 2
        if depth == 2 and (is_pair_copied or instruction.opname == "DUP_TOP_TWO"):
            # `x[key] += 1` copies the value and the key.
            return True
        is_jump = "JUMP" in instruction.opname or instruction.opname.startswith("RETURN")
        is_copied = depth == 1 and instruction.opname == "COPY"
        if is_jump or is_copied:
            return False
        depth += dis.stack_effect(instruction.opcode, instruction.arg)
        if depth < 1:
            return False
    return False


def _imported_by(module: str, level: int, rest: list[dis.Instruction]) -> Iterator[Any]:
    """Yield the local variables that an import statement sets, each with the read it stands for."""
    steps: tuple[tuple[str, Any], ...] = ()
    root = module
    for instruction in rest:
        if instruction.opname == "IMPORT_FROM":
            steps = ((".", instruction.argval),)
        elif instruction.opname.startswith("STORE_FAST"):
            argument = instruction.argval
            # STORE_FAST_LOAD_FAST and its like (Python 3.13) have the stored variable first.
            variable = argument if isinstance(argument, str) else argument[0]
            top = module.partition(".")[0]
            if not steps and "." in module and variable == top:
                # `import a.b` binds a.
                root = variable
            yield variable, _Read(root, True, level, steps)
            if not steps:
                return
        elif instruction.opname not in ("SWAP", "POP_TOP", "COPY"):
            return


def _steps_in(
    instructions: list[dis.Instruction], start: int
) -> tuple[tuple[tuple[str, Any], ...], int]:
    """Return the attributes and items that are taken of the value loaded before an instruction.

    Returns:
        The steps, and the index of the instruction after them.
    """
    steps: list[tuple[str, Any]] = []
    index = start
    while index < len(instructions):
        instruction = instructions[index]
        if instruction.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            steps.append((".", instruction.argval))
            index += 1
            continue
        is_key = instruction.opname in ("LOAD_CONST", "LOAD_SMALL_INT")
        if not is_key or index + 1 == len(instructions):
            break
        if not _is_subscript(instructions[index + 1]):
            break
        # Other keys cannot be written in a path.
        if not isinstance(instruction.argval, (str, int)):
            break
        steps.append((_SUBSCRIPT, instruction.argval))
        index += 2
    return tuple(steps), index


def _is_subscript(instruction: dis.Instruction) -> bool:
    if instruction.opname == "BINARY_SUBSCR":
        return True
    return instruction.opname == "BINARY_OP" and instruction.argrepr == _SUBSCRIPT
