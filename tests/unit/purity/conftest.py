"""A fixture with the name of a user's module, which ends with the test."""

from __future__ import annotations

import sys
import types

import pytest

from tests.unit.purity.users_modules import NAMES


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a name for a user's module, which is removed after the test."""
    name = next(NAMES)
    monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    return name


@pytest.fixture(autouse=True)
def no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put back the number of the job that a user's module sets."""
    monkeypatch.setenv("SLURM_JOB_ID", "")
