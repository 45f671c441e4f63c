"""Replaces functions for a while in every module that holds them, and finds the line that called them.

``from os import urandom`` copies the function into the importing module, where replacing ``os.urandom`` has no effect. All
modules are searched, so it does not matter how a function was imported.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, NamedTuple


class Site(NamedTuple):
    """A line of code."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


Place = tuple[dict[str, Any], str, int]


def places(functions: Sequence[Any]) -> list[Place]:
    """Where modules hold these functions: (the module's names, the name, the function's number)."""
    numbers = {id(function): number for number, function in enumerate(functions)}
    found = []
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if not isinstance(names, dict) or numbers.keys().isdisjoint(map(id, list(names.values()))):
            continue
        for name, value in list(names.items()):
            number = numbers.get(id(value))
            if number is not None:
                found.append((names, name, number))
    return found


class Substitution:
    """Replaces functions repeatedly: it searches the modules once, and again after imports.

    It does not find copies outside modules (default arguments, closures).

    Args:
        originals: the functions.
    """

    def __init__(self, originals: Sequence[Any]) -> None:
        self._originals = list(originals)
        self._modules = 0
        self._places: list[Place] = []

    @contextmanager
    def by(self, substitutes: Sequence[Any]) -> Iterator[None]:
        """Inside, every module that holds one of the functions holds its substitute instead.

        At the end, modules that were imported meanwhile are restored too.
        """
        if len(sys.modules) != self._modules:
            self._places = places(self._originals)
            self._modules = len(sys.modules)
        held = [place for place in self._places if place[0].get(place[1]) is self._originals[place[2]]]
        for names, name, number in held:
            names[name] = substitutes[number]
        try:
            yield
        finally:
            for names, name, number in held:
                if names.get(name) is substitutes[number]:
                    names[name] = self._originals[number]
            if len(sys.modules) != self._modules:
                for names, name, number in places(substitutes):
                    names[name] = self._originals[number]


#: Packages that pass a request for random numbers on: their caller is the one that asks.
_PASSED_THROUGH = frozenset({"random", "secrets", "uuid", "numpy", "torch", "os"})

#: The module with the functions that replace the watched ones.
_WATCHED_BY = "detaug.watching.randomness"

#: Parts of detaug that belong to a user's pipeline and not to the machinery that runs it.
_OUR_PIPELINES = ("detaug.demo.", "detaug.nnunet.", "detaug.transforms.", "detaug.kernels.")


def module_of(frame: FrameType) -> str:
    """The name of the module whose code a frame runs."""
    return str(frame.f_globals.get("__name__", ""))


def is_machinery(module: str) -> bool:
    """Whether it is detaug's own machinery (or its progress bar, or a notebook's kernel), and not part of a pipeline."""
    if module.startswith("detaug."):
        return not module.startswith(_OUR_PIPELINES)
    return module.partition(".")[0] in ("rich", "ipykernel")  # a kernel ends where os.getppid() changes


def is_standard_library(module: str) -> bool:
    """Whether the module comes with Python."""
    return module.partition(".")[0] in sys.stdlib_module_names and module != "__main__"


def caller_of_randomness(frame: FrameType | None) -> Site | None:
    """The line that asked for random numbers, directly or through `random`, `secrets`, `uuid`, NumPy or torch.

    None where the standard library (`tempfile`, `multiprocessing`) or detaug asked for itself.
    """
    while frame is not None:
        module = module_of(frame)
        if module.partition(".")[0] not in _PASSED_THROUGH and module != _WATCHED_BY:
            if is_machinery(module) or is_standard_library(module):
                return None
            return site_of(frame)
        frame = frame.f_back
    return None


def direct_caller(frame: FrameType | None) -> Site | None:
    """The line that called, unless it is the standard library's or detaug's."""
    if frame is None:
        return None
    module = module_of(frame)
    return None if is_machinery(module) or is_standard_library(module) else site_of(frame)


def first_outside_library(frame: FrameType | None) -> Site | None:
    """The innermost line that is not the standard library's; None where that is detaug's machinery, or an import."""
    while frame is not None:
        module = module_of(frame)
        if module.startswith("importlib"):
            return None
        if not is_standard_library(module):
            return None if is_machinery(module) else site_of(frame)
        frame = frame.f_back
    return None


def site_of(frame: FrameType) -> Site:
    """Where a frame stands."""
    return Site(frame.f_code.co_filename, frame.f_lineno)
