"""State that a pipeline carries from batch to batch: attributes, class attributes, variables of modules, and what functions
keep (defaults, attributes, the variables around them, caches). Which of it changed, and how to put it back."""

from __future__ import annotations

import copy
import functools
import sys
import types
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from detaug.pipeline.producer import Producer
from detaug.purity.references import attributes_of, parts_of, slots_of
from detaug.verification.trials.values import GENERATORS, digest
from detaug.watching.interception import is_standard_library

_MAX_HOLDERS, _MOST_PARTS = 2_000, 1_000
_MAX_BYTES, _MAX_BYTES_IN_ALL = 64 << 20, 256 << 20
_CLASS, _MODULE = "its class", "its module"
_VALUES = (bool, int, float, complex, str, bytes, bytearray, np.generic, np.ndarray, torch.Tensor, *GENERATORS)
_MUTABLE = (list, dict, set, deque, bytearray, np.ndarray, torch.Tensor, *GENERATORS)
#: They hold what may be the pipeline's, and are themselves no variables of it.
_LED_THROUGH = (dict, list, tuple, deque, functools.partial, types.MethodType)
_CACHED = functools._lru_cache_wrapper
_NOT_COPIED = object()
_NOT_SEARCHED = frozenset({"numpy", "torch", "scipy", "batchgenerators", "batchgeneratorsv2", "nnunetv2", "detaug"})


@dataclass(frozen=True)
class Variable:
    """Something that keeps a value from batch to batch.

    Attributes:
        holder: how to get from the pipeline's objects to what holds it.
        name: under which name.
        owner: the class whose attribute it is, the module whose variable, or the function that keeps it.
        file: the file of a module's variable, else "".
        function: what a function keeps: "local" (a default, or a variable around it), "attribute" or "cache"; else "".
        line: where that function begins.
    """

    holder: str
    name: str
    owner: str
    file: str = ""
    function: str = ""
    line: int = 0

    def __str__(self) -> str:
        return f"{self.owner}.{self.name}"


class Snapshot:
    """The small state that a producer's objects, their classes and their modules hold now.

    Args:
        producer: the pipeline.
        shared: only that of classes and modules, which all copies of the objects in a process share.
    """

    def __init__(self, producer: Producer, shared: bool = False) -> None:
        self._values: dict[Variable, tuple[str, Any]] = {}
        self._places: set[tuple[str, str]] = set()
        self._shared = shared
        room = _MAX_BYTES_IN_ALL
        for _, variable, value in self._variables(producer):
            room -= (size := _bytes_of(value))
            try:
                saved = copy.deepcopy(value) if room >= 0 else _NOT_COPIED
            except Exception:  # what cannot be copied cannot be put back: it is not tried
                saved = _NOT_COPIED
            if saved is _NOT_COPIED:
                room += size
            self._values[variable] = (digest(value), saved)
            self._places.add((variable.holder, variable.owner))

    def _variables(self, producer: Producer) -> Iterator[tuple[Any, Variable, Any]]:
        for each in _variables(producer):
            if not self._shared or each[1].holder.startswith((_CLASS, _MODULE)):
                yield each

    def changed(self, producer: Producer) -> list[Variable]:
        """What has changed since, or come to be."""
        found = []
        for _, variable, value in self._variables(producer):
            before = self._values.get(variable)
            if before is None or before[0] != digest(value):
                found.append(variable)
        return found

    def put_back(self, producer: Producer, keep: Collection[Variable] = ()) -> None:
        """Everything but `keep` as it was; what was not there, in a place that was, is taken away."""
        for holder, variable, value in list(self._variables(producer)):
            if variable in keep:
                continue
            before = self._values.get(variable)
            if before is not None and (before[1] is _NOT_COPIED or before[0] == digest(value)):
                continue
            if isinstance(holder, _CACHED):
                holder.cache_clear()
                continue
            if before is not None and _put_into(value, before[1]):
                continue
            if before is None:
                # In a place that was not there before, whatever it holds is left to it.
                if isinstance(holder, dict) and (variable.holder, variable.owner) in self._places:
                    holder.pop(variable.name, None)
            elif isinstance(holder, types.CellType):
                holder.cell_contents = copy.deepcopy(before[1])
            elif isinstance(holder, dict):
                holder[variable.name] = copy.deepcopy(before[1])
            else:
                setattr(holder, variable.name, copy.deepcopy(before[1]))


def _put_into(value: Any, saved: Any) -> bool:
    """Restore `value` to `saved`, in place, so that other holders see it too; whether that was possible."""
    if type(value) is not type(saved):
        return False
    if isinstance(value, (np.ndarray, torch.Tensor)):
        if value.shape != saved.shape or value.dtype != saved.dtype:
            return False
        value[...] = saved
        return True
    if not isinstance(value, (list, deque, dict, set)):
        return False
    saved = copy.deepcopy(saved)
    value.clear()
    if isinstance(value, (list, deque)):
        value.extend(saved)
    else:
        value.update(saved)
    return True


def _variables(producer: Producer) -> Iterator[tuple[Any, Variable, Any]]:
    """(what holds it, which, its value) for everything below the transform and, if it is stateless, the loader."""
    seen: set[int] = set()
    classes: dict[type, None] = {}
    modules: dict[str, None] = {}
    objects = producer.objects()
    roots = [("transform", objects["transform"])]
    if objects["source"].stateless:
        roots.append(("loader", objects["data_loader"]))
    else:
        classes[type(objects["data_loader"])] = None
    pending: deque[tuple[str, Any]] = deque(roots)
    while pending and len(seen) < _MAX_HOLDERS:
        path, value = pending.popleft()
        if id(value) in seen or isinstance(value, (types.NoneType, types.ModuleType, type, *_VALUES)):
            continue
        seen.add(id(value))
        if isinstance(value, types.FunctionType):
            modules[str(value.__module__)] = None
            for cell, variable, item in _around(path, value):
                if _is_value(item):
                    yield cell, variable, item
                else:
                    pending.append((f"{path}.{variable.name}", item))
        elif isinstance(value, _LED_THROUGH):
            if isinstance(value, functools.partial):
                yield from _bound_by(path, value)
            pending.extend((path + label, item) for label, item in islice(parts_of(value), _MOST_PARTS))
        else:
            yield from _of_object(path, value, classes, pending)
    yield from _of_classes_and_modules(classes, modules)


def _of_object(
    path: str, value: Any, classes: dict[type, None], pending: deque[tuple[str, Any]]
) -> Iterator[tuple[Any, Variable, Any]]:
    """The attributes of an instance; what else they lead to is left pending."""
    own = attributes_of(value)
    slots = slots_of(value)
    if own is None and not slots:
        return
    classes[type(value)] = None
    for holder, attributes in ((own, own or {}), (value, slots)):
        for name, item in list(attributes.items()):
            if _is_value(item):
                yield holder, Variable(path, name, type(value).__qualname__), item
            else:
                pending.append((f"{path}.{name}", item))


def _of_classes_and_modules(classes: dict[type, None], modules: dict[str, None]) -> Iterator[tuple[Any, Variable, Any]]:
    done: set[type] = set()
    own: dict[int, types.FunctionType] = {}
    for kind in classes:
        for owner in kind.__mro__:
            if owner in done or _is_library(owner.__module__):
                continue
            done.add(owner)
            modules[owner.__module__] = None
            for name, item in list(vars(owner).items()):
                if not name.startswith("__") and _is_value(item):
                    yield owner, Variable(_CLASS, name, owner.__qualname__), item
                yield from _kept_by(item, owner.__module__)
                if isinstance(item, types.FunctionType) and item.__module__ == owner.__module__:
                    own[id(item.__globals__)] = item
    for function in own.values():
        yield from _in_globals_of_its_own(function)
    for module_name in modules:
        module = sys.modules.get(module_name)
        if module is None or _is_library(module_name):
            continue
        for name, item in list(vars(module).items()):
            if not name.startswith("__") and _is_value(item):
                yield vars(module), Variable(_MODULE, name, module_name, getattr(module, "__file__", None) or ""), item
            yield from _kept_by(item, module_name)
            yield from _held_by(name, item)


def _in_globals_of_its_own(function: types.FunctionType) -> Iterator[tuple[Any, Variable, Any]]:
    """The variables of a module that was sent with the pipeline, as scripts and notebooks are."""
    names = function.__globals__
    if names is getattr(sys.modules.get(function.__module__), "__dict__", None):
        return
    for name, item in list(names.items()):
        if not name.startswith("__") and _is_value(item):
            yield names, Variable(f"{_MODULE} as sent", name, function.__module__, function.__code__.co_filename), item


def _held_by(path: str, item: Any, depth: int = 3) -> Iterator[tuple[Any, Variable, Any]]:
    """The attributes of an object that a module holds, if its class is no library's, and of the objects that it holds."""
    attributes = getattr(item, "__dict__", None)
    if depth == 0 or not isinstance(attributes, dict) or isinstance(item, (type, types.ModuleType, types.FunctionType)):
        return
    if _is_library(type(item).__module__):
        return
    for name, value in list(attributes.items()):
        if _is_value(value):
            yield attributes, Variable(f"{_MODULE}.{path}", name, type(item).__qualname__), value
        else:
            yield from _held_by(f"{path}.{name}", value, depth - 1)


def _around(path: str, function: types.FunctionType) -> Iterator[tuple[types.CellType, Variable, Any]]:
    """The variables of the functions around it."""
    code = function.__code__
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        try:
            value = cell.cell_contents
        except ValueError:  # not yet set
            continue
        yield cell, _of_function(path, function, name, "local"), value


def _bound_by(path: str, bound: functools.partial[Any]) -> Iterator[tuple[Any, Variable, Any]]:
    """The arguments that a partial function keeps."""
    function: Any = bound.func
    if isinstance(function, types.FunctionType):
        for name, value in [*zip(function.__code__.co_varnames, bound.args, strict=False), *bound.keywords.items()]:
            if isinstance(value, _MUTABLE) and _is_value(value):
                yield {}, _of_function(path, function, name, "local"), value


def _kept_by(item: Any, module: str) -> Iterator[tuple[Any, Variable, Any]]:
    """What a function of that module, or a method of one of its classes, keeps from call to call."""
    if isinstance(item, (staticmethod, classmethod)):
        item = item.__func__
    if isinstance(item, _CACHED):
        cached: Any = item.__wrapped__
        if isinstance(cached, types.FunctionType):
            yield item, _of_function(_MODULE, cached, "cache", "cache"), tuple(item.cache_info())
        item = cached
    if not isinstance(item, types.FunctionType) or item.__module__ != module:
        return
    code = item.__code__
    defaults = item.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    for name, value in [*zip(names, defaults, strict=True), *(item.__kwdefaults__ or {}).items()]:
        if isinstance(value, _MUTABLE) and _is_value(value):
            yield {}, _of_function(_MODULE, item, name, "local"), value
    for cell, variable, value in _around(_MODULE, item):
        if _is_value(value):
            yield cell, variable, value
    for name, value in list(vars(item).items()):
        if not name.startswith("__") and _is_value(value):
            yield vars(item), _of_function(_MODULE, item, name, "attribute"), value


def _of_function(holder: str, function: types.FunctionType, name: str, kind: str) -> Variable:
    code = function.__code__
    return Variable(holder, name, function.__qualname__, code.co_filename, kind, code.co_firstlineno)


def _is_library(module: str) -> bool:
    return is_standard_library(module) or module.partition(".")[0] in _NOT_SEARCHED


def _bytes_of(value: Any) -> int:
    """Roughly, of what `_is_value` allows."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes)
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, (dict, list, tuple, set, frozenset, deque)):
        return sum(map(_bytes_of, value.values() if isinstance(value, dict) else value))
    return len(value) if isinstance(value, (str, bytes, bytearray)) else 8


def _is_value(value: Any, depth: int = 3) -> bool:
    """Whether it is data, all the way down, and not too large to be kept twice."""
    if isinstance(value, np.ndarray):
        return value.nbytes <= _MAX_BYTES
    if isinstance(value, torch.Tensor):
        return value.numel() * value.element_size() <= _MAX_BYTES
    if value is None or isinstance(value, _VALUES):
        return True
    if depth == 0:
        return False
    if isinstance(value, dict):
        return len(value) <= 1_000 and all(_is_value(item, depth - 1) for item in value.values())
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return len(value) <= 10_000 and all(_is_value(item, depth - 1) for item in value)
    return False
