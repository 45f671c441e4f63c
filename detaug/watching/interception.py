"""Replaces functions for a while in every module that holds them, finds the line that called them, and listens to calls.

``from os import urandom`` copies the function into the importing module, where replacing ``os.urandom`` has no effect. All
modules are searched, so it does not matter how a function was imported.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple


class Site(NamedTuple):
    """A line of code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _places(functions: Iterable[Any]) -> list[tuple[dict[str, Any], str, Any]]:
    """Where modules hold these functions: (the module's names, the name, the function)."""
    found = []
    wanted = {id(function) for function in functions}
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if isinstance(names, dict) and not wanted.isdisjoint(map(id, list(names.values()))):
            found += [
                (names, name, value) for name, value in list(names.items()) if id(value) in wanted
            ]
    return found


class Substitution:
    """Replaces functions repeatedly: it searches the modules once, and again after imports.

    It does not find copies outside modules (default arguments, closures).

    Args:
        substitutes: each function, and what takes its place.
    """

    def __init__(self, substitutes: Mapping[Any, Any]) -> None:
        self._substitutes = substitutes
        self._originals = {substitute: original for original, substitute in substitutes.items()}
        self._modules = 0
        self._places: list[tuple[dict[str, Any], str, Any]] = []

    @contextmanager
    def made(self) -> Iterator[None]:
        """Inside, every module that holds one of the functions holds its substitute instead.

        At the end, modules that were imported meanwhile are restored too.
        """
        if len(sys.modules) != self._modules:
            self._places = _places(self._substitutes)
            self._modules = len(sys.modules)
        held = [place for place in self._places if place[0].get(place[1]) is place[2]]
        for names, name, original in held:
            names[name] = self._substitutes[original]
        try:
            yield
        finally:
            for names, name, original in held:
                if names.get(name) is self._substitutes[original]:
                    names[name] = original
            if len(sys.modules) != self._modules:
                for names, name, substitute in _places(self._originals):
                    names[name] = self._originals[substitute]


#: Packages that pass a request for random numbers on: their caller is the one that asks.
_PASSED_THROUGH = frozenset({"random", "secrets", "uuid", "numpy", "torch", "os"})

#: The module with the functions that replace the watched ones.
_WATCHED_BY = "detaug.watching.randomness"

#: Parts of detaug that belong to a user's pipeline and not to the machinery that runs it.
_OUR_PIPELINES = ("detaug.demo.", "detaug.nnunet.", "detaug.transforms.", "detaug.kernels.")


def caller_of_randomness(frame: FrameType | None) -> Site | None:
    """The line that asked for random numbers, directly or through `random`, `secrets`, `uuid`, NumPy or torch.

    None where the standard library (`tempfile`, `multiprocessing`) or detaug asked for itself.
    """
    while frame is not None and (
        _module(frame) == _WATCHED_BY or _package(frame) in _PASSED_THROUGH
    ):
        frame = frame.f_back
    return direct_caller(frame)


def direct_caller(frame: FrameType | None) -> Site | None:
    """The line that called, unless it is the standard library's or detaug's."""
    if frame is None or _is_machinery(frame) or is_standard_library(frame):
        return None
    return Site(frame.f_code.co_filename, frame.f_lineno)


def first_outside_library(frame: FrameType | None) -> Site | None:
    """The innermost line that is not the standard library's; None where that is detaug's machinery, or an import."""
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
    """Whether it is detaug's own machinery, and not part of a pipeline."""
    return _package(frame) == "detaug" and not _module(frame).startswith(_OUR_PIPELINES)


def is_standard_library(frame: FrameType) -> bool:
    """Return whether a frame runs code of Python's own modules."""
    return _package(frame) in sys.stdlib_module_names and _module(frame) != "__main__"


Listener = Callable[[FrameType, str, Any], object]


@contextmanager
def listening(listen: Listener) -> Iterator[None]:
    """Inside, `listen` is this thread's profile function, as for `sys.setprofile`. The program's own is called as well, if it is
    written in Python, and goes on afterwards."""
    outer: Any = sys.getprofile()

    def both(frame: FrameType, event: str, argument: Any) -> None:
        listen(frame, event, argument)
        outer(frame, event, argument)

    # cProfile's is an object that cannot be called; it misses what happens inside.
    sys.setprofile(both if callable(outer) else listen)
    try:
        yield
    finally:
        sys.setprofile(outer if callable(outer) else None)
        if outer is not None and not callable(outer):
            outer.enable()
