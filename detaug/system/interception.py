"""Replace functions for a while in every module that holds them, and find the lines that call them.

``from os import urandom`` copies the function into the importing module, where replacing
``os.urandom`` has no effect. All modules are searched, so it does not matter how a function was
imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple


class Site(NamedTuple):
    """A line of code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class _Holder(NamedTuple):
    """A name of a module's that holds a function.

    Attributes:
        names: all names of the module.
        name: the one that holds the function.
        function: the function.
    """

    names: dict[str, Any]
    name: str
    function: Any

    @property
    def is_current(self) -> bool:
        """True while the name still holds the function."""
        return self.names.get(self.name) is self.function


def _find_holders(functions: Iterable[Any]) -> list[_Holder]:
    """Return the names of all modules that hold one of these functions."""
    holders = []
    ids = {id(function) for function in functions}
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict):
            continue
        # Copies: another thread may import meanwhile. Most modules hold none, which is fast to see.
        if ids.isdisjoint(map(id, list(names.values()))):
            continue
        for name, value in list(names.items()):
            if id(value) in ids and not _is_home(names, value):
                holders.append(_Holder(names, name, value))
    return holders


def _is_home(names: dict[str, Any], value: Any) -> bool:
    """Return whether these are the names of the module that a class is defined in.

    There pickle looks for it, and must find the class itself.
    """
    return isinstance(value, type) and names.get("__name__") == value.__module__


class Holders:
    """The names of all modules that hold some functions: searched once, and again after imports.

    The search takes as long as a small batch, and a fork that searches copies most of its memory:
    it writes a reference count into every object. Substitutions of the same functions share one.
    """

    def __init__(self) -> None:
        self._functions: frozenset[int] = frozenset()
        self._num_modules = 0
        self._holders: list[_Holder] = []

    def of(self, functions: Collection[Any]) -> list[_Holder]:
        """Return the names that held one of these functions at the last search."""
        ids = frozenset(map(id, functions))
        if ids != self._functions or len(sys.modules) != self._num_modules:
            self._holders = _find_holders(functions)
            self._functions = ids
            self._num_modules = len(sys.modules)
        return self._holders


class Substitution:
    """A replacement of functions that can be applied again and again.

    Copies outside modules (default arguments, closures) are not found.

    Args:
        substitutes: each function, and its replacement.
        holders: of the same functions, which other substitutions have searched for; None: its own.
    """

    def __init__(self, substitutes: Mapping[Any, Any], holders: Holders | None = None) -> None:
        self._substitutes = substitutes
        self._originals = {substitute: original for original, substitute in substitutes.items()}
        self._holders = holders or Holders()

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Have every module hold the substitutes in place of the functions, inside the block.

        At the end, modules that were imported meanwhile are restored too.
        """
        found = self._holders.of(self._substitutes)
        num_modules = len(sys.modules)
        holders = [holder for holder in found if holder.is_current]
        for names, name, original in holders:
            names[name] = self._substitutes[original]
        try:
            yield
        finally:
            for names, name, original in holders:
                # Unless somebody else has replaced the substitute.
                if names.get(name) is self._substitutes[original]:
                    names[name] = original
            # A module that was imported inside took the substitute over by its name.
            if len(sys.modules) != num_modules:
                for names, name, substitute in _find_holders(self._originals):
                    names[name] = self._originals[substitute]


#: Packages that pass a request for random numbers on: their caller is the one that asks.
_PASSED_THROUGH = frozenset({"random", "secrets", "uuid", "numpy", "torch", "os"})

#: NumPy's module that copies and unpickles generators: what they draw is replaced by their state.
_RESTORES_GENERATORS = "numpy.random._pickle"

#: The module with the functions that replace the watched ones.
_WATCHED_BY = "detaug.system.unseeded_draws"

#: Parts of detaug that belong to a user's pipeline and not to the machinery that runs it.
_OUR_PIPELINES = ("detaug.demo.", "detaug.nnunet.", "detaug.transforms.", "detaug.kernels.")


def caller_of_randomness(frame: FrameType | None) -> Site | None:
    """Return the line that asked for random numbers.

    It may have asked through `random`, `secrets`, `uuid`, NumPy or torch. None where the standard
    library (`tempfile`, `multiprocessing`) or detaug asked for itself.
    """
    while frame is not None and _passes_requests_on(frame):
        if _module(frame) == _RESTORES_GENERATORS:
            return None
        frame = frame.f_back
    return direct_caller(frame)


def _passes_requests_on(frame: FrameType) -> bool:
    """Return True for code whose caller is the one that asks."""
    return _module(frame) == _WATCHED_BY or _package(frame) in _PASSED_THROUGH


def direct_caller(frame: FrameType | None) -> Site | None:
    """Return the line that called; None if it is the standard library's or detaug's."""
    if frame is None or _is_machinery(frame) or is_standard_library(frame):
        return None
    return Site(frame.f_code.co_filename, frame.f_lineno)


def first_outside_library(frame: FrameType | None) -> Site | None:
    """Return the innermost line that is not the standard library's.

    None where that is detaug's machinery, or an import.
    """
    while frame is not None and is_standard_library(frame):
        if _package(frame) == "importlib":
            return None
        frame = frame.f_back
    return direct_caller(frame)


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__", ""))


def _package(frame: FrameType) -> str:
    return _module(frame).partition(".")[0]


def _is_machinery(frame: FrameType) -> bool:
    """Return True for detaug's own machinery, which is no part of a pipeline."""
    return _package(frame) == "detaug" and not _module(frame).startswith(_OUR_PIPELINES)


def is_standard_library(frame: FrameType) -> bool:
    """Return whether a frame runs code of Python's own modules."""
    return _package(frame) in sys.stdlib_module_names and _module(frame) != "__main__"


Listener = Callable[[FrameType, str, Any], object]


@contextmanager
def listening(listen: Listener) -> Iterator[None]:
    """Make `listen` this thread's profile function, as for `sys.setprofile`, inside the block.

    The program's own is called as well, if it is written in Python, and continues afterwards.
    """
    outer: Any = sys.getprofile()

    def listen_and_call_outer(frame: FrameType, event: str, argument: Any) -> None:
        listen(frame, event, argument)
        outer(frame, event, argument)

    if callable(outer):
        sys.setprofile(listen_and_call_outer)
    else:
        # cProfile's is an object that cannot be called; it misses what happens inside.
        sys.setprofile(listen)
    try:
        yield
    finally:
        if callable(outer):
            sys.setprofile(outer)
        else:
            sys.setprofile(None)
            if outer is not None:
                outer.enable()
