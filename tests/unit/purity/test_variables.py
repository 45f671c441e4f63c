"""The variables of the user's modules and classes that a pipeline's code reads."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from detaug.objects.variables import variables_of

SETTINGS = """
STRENGTH = 2.0
TABLE = {"noise": 0.1, "blur": 0.2}
UNUSED = 1
"""
PIPELINE = """
import functools
from types import SimpleNamespace

import numpy as np
import user_settings
from user_settings import TABLE as NAMED

AMOUNT, OTHER, SIZES, HITS, UNUSED = 1, 2, [8, 16], 0, 3
epoch, step = 5, 6
ARGUMENTS = SimpleNamespace(p=0.5, epoch=7)
NESTED = {"a": {"b": 4}, "epoch": 8}


class Amount:
    def __init__(self):
        self.value = 1

    def get(self):
        return self.value * OTHER


HOLDER = Amount()


class Base:
    depth = 3

    @property
    def size(self):
        return SIZES[0]


class Scale(Base):
    factor = 4
    epoch = None  # of its own

    @classmethod
    def made(cls):
        return cls()

    def __call__(self, x):
        self.step = x
        return helper(x) * self.factor * self.step


def helper(x):
    return x * AMOUNT * np.pi


def decorated(function):
    @functools.wraps(function)
    def wrapper(x):
        return function(x)

    return wrapper


@decorated
def wrapped(x):
    return x * AMOUNT


def of_a_module(x):
    return x * user_settings.STRENGTH * NAMED["noise"]


def of_imports(x):
    import user_settings as settings
    from user_settings import TABLE

    return x * settings.STRENGTH * TABLE["blur"]


def of_objects(x):
    return x * ARGUMENTS.p * NESTED["a"]["b"]


def of_methods(x):
    return x * HOLDER.get()


def of_a_nested_function(x):
    return [(lambda: y * AMOUNT)() for y in x]


def counts(x):
    global HITS
    HITS += 1
    return x
"""

#: Name of a function or class of PIPELINE -> the variables that its code reads.
READ: dict[str, dict[str, Any]] = {
    "helper": {"user_pipeline.AMOUNT": 1},
    "wrapped": {"user_pipeline.AMOUNT": 1},
    "of_a_module": {"user_settings.STRENGTH": 2.0, "user_pipeline.NAMED['noise']": 0.1},
    "of_imports": {"user_settings.STRENGTH": 2.0, "user_settings.TABLE['blur']": 0.2},
    "of_objects": {"user_pipeline.ARGUMENTS.p": 0.5, "user_pipeline.NESTED['a']['b']": 4},
    "of_a_nested_function": {"user_pipeline.AMOUNT": 1},
    "Scale": {
        "user_pipeline.Scale.factor": 4,
        "user_pipeline.Scale.epoch": None,
        "user_pipeline.Base.depth": 3,
        "user_pipeline.AMOUNT": 1,
        "user_pipeline.SIZES[0]": 8,
    },
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """Import two modules of a user, the second of which reads the first; return the second."""
    for name, source in (("user_settings", SETTINGS), ("user_pipeline", PIPELINE)):
        module = types.ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(source, vars(module))
    return module


@pytest.mark.parametrize("name", READ)
def test_what_the_code_reads_is_found_and_nothing_else(name: str, module: types.ModuleType) -> None:
    assert dict(variables_of([getattr(module, name)])) == READ[name]


def test_an_object_whose_method_is_called_counts_as_a_whole(module: types.ModuleType) -> None:
    variables = dict(variables_of([module.of_methods]))
    assert variables == {"user_pipeline.HOLDER": module.HOLDER, "user_pipeline.OTHER": 2}


def test_what_the_code_writes_itself_can_be_left_out(module: types.ModuleType) -> None:
    assert dict(variables_of([module.counts])) == {"user_pipeline.HITS": 0}
    assert variables_of([module.counts], written=False) == []


@pytest.mark.parametrize("value", [np.linalg.norm, functools.reduce, types.SimpleNamespace, len])
def test_libraries_are_not_looked_into(value: Callable[..., Any]) -> None:
    assert variables_of([value]) == []
