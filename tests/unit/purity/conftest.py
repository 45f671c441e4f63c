"""The module of a user, which goes with the test."""

from __future__ import annotations

import sys
import types

import pytest

from tests.unit.purity.users_modules import NAMES


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the name of the user's module, which goes with the test."""
    name = next(NAMES)
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    return name
