"""Names of a package that are imported on first use: torch, nnU-Net and Numba take seconds to
import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazily(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` (PEP 562) of a package.

    Args:
        package: its ``__name__``.
        modules: by module, the names that it has; one of the package's own modules may have its own
            name.
    """
    homes = {name: module for module, names in modules.items() for name in names}

    def get(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(home)
        value = module if home == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*sys.modules[package].__all__, *homes})
