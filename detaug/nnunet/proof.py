"""Whether what decides on the contents of a batch is nnU-Net's own: only that is replaced by
detaug's.

Nothing is believed of a name. A method is nnU-Net's own if its code lies in the file of nnU-Net's
(or batchgenerators') module that says it defines it, and if the functions and classes that it calls
by global names are of the libraries that nnU-Net itself imports. An object counts as nnU-Net's if
that is true of every method that nnU-Net's class has, whatever subclass it is of, and if no
attribute of the object hides one of them.
"""

from __future__ import annotations

import inspect
import os
import sys
import sysconfig
from collections.abc import Iterator
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

from detaug.nnunet.compatibility import dataset_class, loader_class
from detaug.nnunet.loading.case_files import CaseFolder
from detaug.nnunet.loading.patch_source import PatchSource

#: The packages whose functions decide what is in a batch, and which are looked into as well.
_FOLLOWED = {"nnunetv2", "batchgenerators", "batchgeneratorsv2", "acvl_utils"}
#: The packages that nnU-Net's loaders, data sets and pipelines are made of.
_INSTALLED = {*_FOLLOWED, "blosc2", "numpy", "torch", "threadpoolctl"}
_LIBRARIES = {*_INSTALLED, *sys.stdlib_module_names}
_STANDARD = sysconfig.get_path("stdlib")
_CODE = (type, FunctionType, BuiltinFunctionType, MethodType)
#: The special methods that decide on a batch; what `__init__` sets is looked at on the object.
_SPECIAL = {
    "__call__",
    "__getattr__",
    "__getattribute__",
    "__getitem__",
    "__iter__",
    "__len__",
    "__new__",
    "__next__",
}
#: Methods by which detaug tells a loader the epoch, or puts it back: what nnU-Net's lacks, and a
#: `PatchSource` would.
_HOOKS = {"set_epoch", "state_dict", "load_state_dict"}


def not_own(function: Any, seen: set[int] | None = None) -> str | None:
    """Why a function is not nnU-Net's own, in a few words; None: it is."""
    if isinstance(function, (staticmethod, classmethod, MethodType)):
        function = function.__func__
    if isinstance(function, property):
        return next(
            (
                why
                for each in (function.fget, function.fset)
                if each and (why := not_own(each, seen))
            ),
            None,
        )
    if not isinstance(function, FunctionType):
        return (
            None
            if _of_a_library(function)
            else f"is a {type(function).__name__} of {_module(function)}"
        )
    if not _of_a_library(function) or not _in_a_librarys_file(function):
        return f"is defined in {function.__code__.co_filename}"
    seen = seen or set()
    seen.add(id(function.__code__))
    for name, called in _called(function):
        if isinstance(called, _CODE) and not _of_a_library(called):
            return f"calls {name} of {_module(called)}"
        for method in _functions_of(called):
            if not _of_a_library(method) or not _in_a_librarys_file(method):
                return f"calls {name}, which is defined in {method.__code__.co_filename}"
        if (
            isinstance(called, FunctionType)
            and _package(called) in _FOLLOWED
            and id(called.__code__) not in seen
        ):
            why = not_own(called, seen)
            if why is not None:
                return f"calls {name}, which {why}"
    return None


def _called(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """(name, object) of the globals that a function names, and of what it names in modules among
    them.
    """
    names = list(dict.fromkeys(_names(function.__code__)))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            yield from (
                (f"{name}.{each}", vars(value)[each]) for each in names if each in vars(value)
            )
        elif value is not None:
            yield name, value


def _names(code: CodeType) -> Iterator[str]:
    """Those of nested code too: comprehensions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _functions_of(called: Any) -> list[FunctionType]:
    """A function itself; the methods of a class of transforms, or of arrays."""
    looked_into = {*_FOLLOWED, "blosc2"}
    if isinstance(called, FunctionType):
        return [called]
    if not isinstance(called, type) or _package(called) not in looked_into:
        return []
    methods = [
        each
        for base in called.__mro__
        if _package(base) in looked_into
        for each in vars(base).values()
    ]
    return [each for each in methods if isinstance(each, FunctionType)]


def _module(value: Any) -> str:
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _package(value: Any) -> str:
    return _module(value).partition(".")[0]


def _of_a_library(value: Any) -> bool:
    return _package(value) in _LIBRARIES


def _in_a_librarys_file(function: FunctionType) -> bool:
    """Also where a decorator of another library stands around it, or NumPy gives it another
    module's name.
    """
    file = function.__code__.co_filename
    if file.startswith("<") or (file.startswith(_STANDARD) and "site-packages" not in file):
        return True
    modules = [sys.modules[each] for each in _INSTALLED if each in sys.modules]
    places = [
        getattr(each, "__path__", None) or [getattr(each, "__file__", None)] for each in modules
    ]
    return any(
        file == place or file.startswith(f"{place}{os.sep}")
        for each in places
        for place in each
        if place
    )


def unlike(value: Any, stock: type) -> str | None:
    """Why an object does not do what one of nnU-Net's class does; None: it does."""
    kind = type(value)
    if not isinstance(value, stock):
        return f"{kind.__module__}.{kind.__qualname__} is not nnU-Net's {stock.__name__}"
    attributes = vars(value)
    computed = {
        name for name, each in inspect.getmembers_static(kind) if isinstance(each, property)
    }
    named = {name for name in dir(stock) if not name.startswith("__") and name != "_abc_impl"}
    for name in sorted({*named, *computed, *_HOOKS, *_SPECIAL}):
        method = inspect.getattr_static(kind, name, None)
        if isinstance(method, (FunctionType, staticmethod, classmethod, property)):
            if name in _HOOKS or (why := not_own(method)) is not None:
                return f"{kind.__qualname__}.{name} {'changes it' if name in _HOOKS else why}"
            if name in attributes:
                return f"{name} of its {kind.__qualname__} is set on the object"
        elif method is not inspect.getattr_static(stock, name, None) or (
            callable(method) and type(method).__module__ != "builtins"
        ):
            return f"{kind.__qualname__}.{name} is another than {stock.__name__}'s"
    chosen = attributes.get("get_do_oversample")  # holds one of the loader's own methods
    if chosen is not None and (
        getattr(chosen, "__self__", None) is not value or not_own(chosen) is not None
    ):
        return f"get_do_oversample of its {kind.__qualname__} is set on the object"
    return None


def why_loader_stays(loader: Any) -> str | None:
    """Why a loader is not replaced by a `PatchSource`; None: it can be."""
    return (
        unlike(loader, loader_class())
        or unlike(loader._data, dataset_class())
        or (None if loader.infinite else "it ends")
    )


def patch_source_of(loader: Any) -> PatchSource:
    """What draws and reads as a loader does that `why_loader_stays` has nothing to say of, by the
    attributes that it has now.
    """
    patch = tuple(int(n) for n in loader.patch_size)[
        1 if getattr(loader, "patch_size_was_2d", False) else 0 :
    ]
    final = tuple(int(n) for n in loader.final_patch_size)[-len(patch) :]
    indices = [str(each) for each in loader.indices]
    data = loader._data
    source = PatchSource(
        CaseFolder(
            data.source_folder, sorted(set(indices)), data.folder_with_segs_from_previous_stage
        ),
        loader.batch_size,
        patch,
        final,
        SimpleNamespace(all_labels=(), has_ignore_label=loader.has_ignore),
        loader.oversample_foreground_percent,
        None,
        None if loader.pad_sides is None else tuple(loader.pad_sides)[-len(patch) :],
        loader.get_do_oversample.__name__ == "_probabilistic_oversampling",
        loader.transforms,
    )
    source.indices, source.sampling_probabilities = indices, loader.sampling_probabilities
    source.annotated_classes_key = loader.annotated_classes_key
    source.need_to_pad = [int(n) for n in loader.need_to_pad]
    return source
