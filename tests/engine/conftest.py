"""The fixtures of the acceptance tests."""

from __future__ import annotations

from tests.acceptance.conftest import (
    make,
    mark,
    no_seed_from_outside,
    pytest_collection_modifyitems,
    script,
    start_method,
)

__all__ = ["make", "mark", "no_seed_from_outside", "pytest_collection_modifyitems", "script", "start_method"]
