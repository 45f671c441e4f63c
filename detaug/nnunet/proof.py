"""A proof that nnU-Net's own code decides on the contents of a batch: only that is replaced.

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
    """Return why a function is not nnU-Net's own, in a few words; None: it is.

    Args:
        function: a function, method or property; or another object of a class's.
        seen: ids of code that was looked at already.
    """
    if isinstance(function, (staticmethod, classmethod, MethodType)):
        function = function.__func__
    if isinstance(function, property):
        return _accessor_not_own(function, seen)
    if not isinstance(function, FunctionType):
        if _of_a_library(function):
            return None
        return f"is a {type(function).__name__} of {_module(function)}"
    if not _of_a_library(function) or not _in_a_librarys_file(function):
        return f"is defined in {function.__code__.co_filename}"
    # Functions may call each other in a circle.
    seen = seen or set()
    seen.add(id(function.__code__))
    for name, called in _called(function):
        reason = _called_not_own(name, called, seen)
        if reason is not None:
            return reason
    return None


def _accessor_not_own(accessors: property, seen: set[int] | None) -> str | None:
    """Return why the getter or the setter of a property is not nnU-Net's own."""
    for accessor in (accessors.fget, accessors.fset):
        if accessor is None:
            continue
        reason = not_own(accessor, seen)
        if reason is not None:
            return reason
    return None


def _called_not_own(name: str, called: Any, seen: set[int]) -> str | None:
    """Return why a global that a function calls by this name is not a library's."""
    # A function that somebody has put in the place of a library's: its module shows it.
    if isinstance(called, _CODE) and not _of_a_library(called):
        return f"calls {name} of {_module(called)}"
    # A method that somebody has put into a library's class: its file shows it.
    for method in _functions_of(called):
        if not _of_a_library(method) or not _in_a_librarys_file(method):
            return f"calls {name}, which is defined in {method.__code__.co_filename}"
    # What NumPy, torch and the standard library call in turn is theirs.
    if not isinstance(called, FunctionType) or _package(called) not in _FOLLOWED:
        return None
    if id(called.__code__) in seen:
        return None
    reason = not_own(called, seen)
    if reason is None:
        return None
    return f"calls {name}, which {reason}"


def _called(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield (name, object) of the globals that a function names.

    In modules among them, it is the objects that the function names as well.
    """
    # What a function reaches through ``self`` is no global: `unlike` looks at every method.
    names = list(dict.fromkeys(_names(function.__code__)))
    for name in names:
        value = function.__globals__.get(name)
        if isinstance(value, ModuleType):
            for attribute in names:
                if attribute in vars(value):
                    yield f"{name}.{attribute}", vars(value)[attribute]
        elif value is not None:
            yield name, value


def _names(code: CodeType) -> Iterator[str]:
    """Yield the names in code, and in code within it: comprehensions."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _functions_of(called: Any) -> list[FunctionType]:
    """Return a function itself; or the methods of a class of transforms, or of arrays."""
    # Arrays are blosc2's: their ``__getitem__`` reads the voxels.
    packages = {*_FOLLOWED, "blosc2"}
    if isinstance(called, FunctionType):
        return [called]
    if not isinstance(called, type) or _package(called) not in packages:
        return []
    methods: list[FunctionType] = []
    for base in called.__mro__:
        if _package(base) not in packages:
            continue
        for value in vars(base).values():
            if isinstance(value, FunctionType):
                methods.append(value)
    return methods


def _module(value: Any) -> str:
    return str(getattr(value, "__module__", None) or type(value).__module__)


def _package(value: Any) -> str:
    return _module(value).partition(".")[0]


def _of_a_library(value: Any) -> bool:
    return _package(value) in _LIBRARIES


def _in_a_librarys_file(function: FunctionType) -> bool:
    """Return True for code in a file of a library.

    So it is also where a decorator of another library stands around a function, or NumPy gives it
    another module's name.
    """
    file = function.__code__.co_filename
    # ``<string>`` is code that namedtuples and dataclasses generate. Installed packages may lie
    # below the folder of the standard library.
    if file.startswith("<") or (file.startswith(_STANDARD) and "site-packages" not in file):
        return True
    # A package that is not imported cannot be the one that defines the function.
    imported = [sys.modules[name] for name in _INSTALLED if name in sys.modules]
    for module in imported:
        for path in _paths_of(module):
            if file == path or file.startswith(f"{path}{os.sep}"):
                return True
    return False


def _paths_of(module: ModuleType) -> list[str]:
    """Return the folders of a package, or the file of a module."""
    # A namespace package has no file of its own, and may have several folders.
    paths = getattr(module, "__path__", None) or [getattr(module, "__file__", None)]
    return [path for path in paths if path]


def unlike(value: Any, stock: type) -> str | None:
    """Return why an object does other things than one of nnU-Net's class; None: it does not."""
    kind = type(value)
    if not isinstance(value, stock):
        return f"{kind.__module__}.{kind.__qualname__} is not nnU-Net's {stock.__name__}"
    # A property may stand in the way of an attribute that nnU-Net's class sets in its constructor.
    members = inspect.getmembers_static(kind)
    properties = [name for name, member in members if isinstance(member, property)]
    # `_abc_impl` is where `abc` registers subclasses: each class has another one.
    named = [name for name in dir(stock) if not name.startswith("__") and name != "_abc_impl"]
    for name in sorted({*named, *properties, *_HOOKS, *_SPECIAL}):
        reason = _unlike_method(value, stock, name)
        if reason is not None:
            return reason
    # nnU-Net's constructor sets the attribute to one of the loader's own methods.
    oversample = vars(value).get("get_do_oversample")
    if oversample is None:
        return None
    is_bound_here = getattr(oversample, "__self__", None) is value
    if is_bound_here and not_own(oversample) is None:
        return None
    return f"get_do_oversample of its {kind.__qualname__} is set on the object"


def _unlike_method(value: Any, stock: type, name: str) -> str | None:
    """Return why a method is another than the class's of nnU-Net; None: it is not."""
    kind = type(value)
    # Statically: a metaclass or a descriptor could give another answer to `getattr`.
    method = inspect.getattr_static(kind, name, None)
    if isinstance(method, (FunctionType, staticmethod, classmethod, property)):
        if name in _HOOKS:
            return f"{kind.__qualname__}.{name} changes it"
        reason = not_own(method)
        if reason is not None:
            return f"{kind.__qualname__}.{name} {reason}"
        if name in vars(value):
            return f"{name} of its {kind.__qualname__} is set on the object"
        return None
    # What is left are objects that are no functions: those of Python itself, such as
    # ``object.__getattribute__``, and constants of the class.
    is_other = method is not inspect.getattr_static(stock, name, None)
    is_callable = callable(method) and type(method).__module__ != "builtins"
    if is_other or is_callable:
        return f"{kind.__qualname__}.{name} is another than {stock.__name__}'s"
    return None


def why_loader_stays(loader: Any) -> str | None:
    """Return why a loader is not replaced by a `PatchSource`; None: it can be."""
    reason = unlike(loader, loader_class()) or unlike(loader._data, dataset_class())
    if reason is None and not loader.infinite:
        return "it ends"
    return reason


def patch_source_of(loader: Any) -> PatchSource:
    """Return a source that draws and reads as a loader does, by the attributes that it has now.

    Args:
        loader: one that `why_loader_stays` has no reason for.
    """
    # nnU-Net's loader has given planes a first axis of one voxel; `PatchSource` does that itself.
    patch = tuple(map(int, loader.patch_size))
    if getattr(loader, "patch_size_was_2d", False):
        patch = patch[1:]
    dims = len(patch)
    final = tuple(map(int, loader.final_patch_size))[-dims:]
    pad_sides = loader.pad_sides
    if pad_sides is not None:
        pad_sides = tuple(pad_sides)[-dims:]
    indices = list(map(str, loader.indices))
    data = loader._data
    previous_stage = data.folder_with_segs_from_previous_stage
    cases = CaseFolder(data.source_folder, sorted(set(indices)), previous_stage)
    source = PatchSource(
        cases,
        batch_size=loader.batch_size,
        patch_size=patch,
        final_patch_size=final,
        # The labels' key is the loader's own, below.
        label_manager=SimpleNamespace(all_labels=(), has_ignore_label=loader.has_ignore),
        oversample_foreground_percent=loader.oversample_foreground_percent,
        sampling_probabilities=None,
        pad_sides=pad_sides,
        probabilistic_oversampling=(
            loader.get_do_oversample.__name__ == "_probabilistic_oversampling"
        ),
        transforms=loader.transforms,
    )
    # Not through the constructor: a trainer may have changed them on the loader, to some of the
    # cases, or to one case several times, with as many probabilities.
    source.indices = indices
    source.sampling_probabilities = loader.sampling_probabilities
    source.annotated_classes_key = loader.annotated_classes_key
    source.need_to_pad = [int(n) for n in loader.need_to_pad]
    return source
