"""Names of a package that are imported on first use.

torch, nnU-Net and Numba take seconds to import.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any


def lazily(
    package: str, modules: Mapping[str, Sequence[str]]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` (PEP 562) for a package.

    Args:
        package: its ``__name__``.
        modules: the names that each module exports. A submodule of the package may export itself,
            under its own name.
    """
    module_of: dict[str, str] = {}
    for module, names in modules.items():
        for name in names:
            module_of[name] = module

    def get_attribute(name: str) -> Any:
        module_name = module_of.get(name)
        if module_name is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: Any = importlib.import_module(module_name)
        if module_name != f"{package}.{name}":
            value = getattr(value, name)
        # From now on Python finds the name without this function.
        setattr(sys.modules[package], name, value)
        return value

    def list_names() -> list[str]:
        return sorted({*sys.modules[package].__all__, *module_of})

    return get_attribute, list_names
