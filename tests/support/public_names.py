"""A check of the module names that a package's public classes carry."""

from __future__ import annotations

import importlib


def assert_found_under_their_own_names(module: str) -> None:
    """Assert that each public class of a module can be imported by its own full name."""
    public = importlib.import_module(module)
    values = [getattr(public, name) for name in public.__all__]
    classes = [value for value in values if isinstance(value, type)]
    assert classes
    for cls in classes:
        if cls.__module__.startswith("detaug"):
            home = importlib.import_module(cls.__module__)
            assert getattr(home, cls.__name__) is cls
