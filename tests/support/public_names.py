"""What a package's public classes say of where they come from."""

from __future__ import annotations

import importlib


def assert_found_under_their_own_names(module: str) -> None:
    public = importlib.import_module(module)
    kinds = [kind for name in public.__all__ if isinstance(kind := getattr(public, name), type)]
    assert kinds
    for kind in kinds:
        if kind.__module__.startswith("detaug"):
            assert getattr(importlib.import_module(kind.__module__), kind.__name__) is kind
