"""The compilation of kernels: one decorator, one registry, one way to compile ahead.

No fast-math, no contraction, no threads: each operation is rounded as IEEE 754 says, in the order
in which it is written, so that a kernel gives the same bytes whatever instructions the CPU has.
Compiled code is cached on disk (`detaug.kernels.cache` says where).
"""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import threading
from collections.abc import Callable
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar, cast

import numba
import numpy as np

from detaug.kernels.cache import bring_compiled, cache_folder, source_digest, warn_once

_F = TypeVar("_F", bound=Callable[..., Any])

#: Kernels are called from Python alone, so that the wrapper for C is left out.
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "fastmath": False,
    "error_model": "numpy",
    "no_cfunc_wrapper": True,
}
#: For functions that are not called from Python: half of the time that compiling takes.
_WITHOUT_WRAPPERS: dict[str, Any] = {**_OPTIONS, "no_cpython_wrapper": True}

_compiling = threading.RLock()
_CACHE_FOLDER = cache_folder()


def _keep_on_disk(dispatcher: Any, folder: Path) -> None:
    """Enable Numba's cache for a function.

    Numba reads its setting when caching is enabled; other packages' functions keep their own place.
    """
    digest = source_digest(dispatcher.py_func.__module__.rpartition(".")[2])
    bring_compiled(digest, folder)
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = str(folder / digest)  # type: ignore[attr-defined]
    try:
        (folder / digest).mkdir(parents=True, exist_ok=True)
        dispatcher.enable_caching()
    except OSError as error:
        _warn_not_kept(_description(error))
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


def _warn_not_kept(reason: str) -> None:
    """Warn once that compiled code is in memory only."""
    warn_once(
        "compiled kernels cannot be kept on disk: %s. They are kept in memory alone, so that every"
        " new process compiles them again. Make room there, or set NUMBA_CACHE_DIR to a folder that"
        " can be written to.",
        reason,
    )


def _description(error: Exception) -> str:
    return f"in {_CACHE_FOLDER}, {type(error).__name__}: {error}"


class Kernel:
    """A compiled function, the signatures it is used with, and its name.

    Args:
        function: the Python function.
        signatures: Numba signatures as strings, e.g. ``"void(float32[::1], float32)"``; a call with
            other types is an error rather than a surprise of several seconds.
    """

    def __init__(self, function: Callable[..., Any], signatures: tuple[str, ...]) -> None:
        self.name = f"{function.__module__.removeprefix('detaug.kernels.')}.{function.__name__}"
        self.signatures = signatures
        self.dispatcher = numba.njit(**_OPTIONS)(function)
        if _CACHE_FOLDER is not None:
            _keep_on_disk(self.dispatcher, _CACHE_FOLDER)
        # For `help`, and for pickling by name.
        self.__doc__ = function.__doc__
        self.__module__ = function.__module__
        self.__name__ = function.__name__
        self._compiled = False
        self._arrays: tuple[int, ...] = ()

    def is_compiled(self) -> bool:
        """Return True if `compile` has nothing to do, or only to load from the cache on disk."""
        if self._compiled:
            return True
        # Numba has no public way to ask.
        cache = self.dispatcher._cache
        if not hasattr(cache, "_cache_file"):
            # There is no cache.
            return False
        codegen = self.dispatcher.targetctx.codegen()
        index = cache._cache_file._load_index()
        return all(cache._index_key(signature, codegen) in index for signature in self.signatures)

    def compile(self) -> None:
        """Compile every signature, or take it from the cache on disk. Does nothing the second time.

        Where the cache cannot be written to or read, the compiled code is kept in memory, and a
        warning says so once.
        """
        with _compiling:
            if self._compiled:
                return
            if _CACHE_FOLDER is None:
                _warn_not_kept("none of the usual folders can be written to")
            for signature in self.signatures:
                try:
                    self.dispatcher.compile(signature)
                except (OSError, EOFError, pickle.UnpicklingError) as error:
                    # The disk is full, say, or what was cached cannot be read. What had been
                    # compiled by then is there, and is not compiled again.
                    self.dispatcher._cache.disable()
                    self.dispatcher.compile(signature)
                    _warn_not_kept(_description(error))
            self.dispatcher.disable_compile()
            # Arrays are at the same places in all signatures.
            types, *_ = self.dispatcher.signatures
            self._arrays = tuple(
                index for index, kind in enumerate(types) if isinstance(kind, numba.types.Array)
            )
            self._compiled = True

    def __call__(self, *arguments: Any) -> Any:
        if not self._compiled:
            self.compile()
        # Most calls have no read-only array: their arguments are passed on as they are.
        for index in self._arrays:
            if not arguments[index].flags.writeable:
                return self.dispatcher(*map(_for_kernel, arguments))
        return self.dispatcher(*arguments)

    def __reduce__(self) -> str:
        return self.__name__

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"


def _for_kernel(argument: Any) -> Any:
    """Return a read-only array as one that is not marked so; nothing is copied.

    To Numba a read-only array would be of another type, for which nothing is compiled. Kernels
    write into their outputs and into nothing else.
    """
    if not isinstance(argument, np.ndarray) or argument.flags.writeable:
        return argument
    interface = argument.__array_interface__
    address, _ = interface["data"]
    unmarked = {**interface, "data": (address, False)}
    return np.asarray(SimpleNamespace(__array_interface__=unmarked, array=argument))


def kernel(*signatures: str) -> Callable[[Callable[..., Any]], Kernel]:
    """Make a function a `Kernel` with these signatures."""

    def decorate(function: Callable[..., Any]) -> Kernel:
        return Kernel(function, signatures)

    return decorate


def inlined(function: _F) -> _F:
    """Compile a function into each kernel that calls it.

    It cannot be called from Python.
    """
    return cast(_F, numba.njit(forceinline=True, **_WITHOUT_WRAPPERS)(function))


def shared(function: _F) -> _F:
    """Compile a long function once for all places of kernels that call it."""
    # Explicitly False: otherwise Numba takes the caller's setting.
    return cast(_F, numba.njit(forceinline=False, **_WITHOUT_WRAPPERS)(function))


def all_kernels() -> list[Kernel]:
    """Return every kernel of the package, in order of name."""
    kernels: set[Kernel] = set()
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        values = vars(importlib.import_module(f"detaug.kernels.{module.name}")).values()
        kernels.update(value for value in values if isinstance(value, Kernel))
    return sorted(kernels, key=attrgetter("name"))
