"""Empty stand-ins for packages that nnU-Net imports and that these runs do not use.

No image file is read here, and nothing is plotted. So SimpleITK, whose wheel is large, and the
plotting libraries may be missing: in this process and its children, and nowhere else.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

PLOTTING = ("matplotlib", "seaborn")
PACKAGES = ("SimpleITK", *PLOTTING)


class Nothing:
    """What a stand-in has under every name; it may be called, and gives itself."""

    def __call__(self, *_: Any, **__: Any) -> Nothing:
        return self

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return self


class StandIn(ModuleType):
    """An empty module, with submodules as empty."""

    def __getattr__(self, name: str) -> Nothing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Nothing()


class StandIns(MetaPathFinder, Loader):
    """Finds stand-ins for some packages."""

    def __init__(self, packages: Sequence[str]) -> None:
        self.packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a stand-in's spec for these packages and their submodules."""
        if name.partition(".")[0] not in self.packages:
            return None
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Return the empty module."""
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Do nothing: the module stays empty."""


def put_in() -> list[str]:
    """Put stand-ins in the place of packages that are not installed, and return their names."""
    missing = [package for package in PACKAGES if importlib.util.find_spec(package) is None]
    if PLOTTING[0] in missing or PLOTTING[1] in missing:
        # seaborn derives classes from matplotlib's: both, or neither.
        missing = [*(package for package in missing if package not in PLOTTING), *PLOTTING]
    if missing:
        sys.meta_path.insert(0, StandIns(missing))
    return missing
