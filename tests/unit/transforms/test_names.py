"""detaug has batchgeneratorsv2's transforms under their own names, with the same parameters."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path

import pytest

from detaug import transforms
from detaug.transforms import bgv2

DOCUMENTATION = Path(__file__).parents[3] / "docs" / "transforms.md"

#: Transforms without a counterpart, which the documentation names below the table.
NOT_HERE = {"ChannelMisalignmentTransform", "MoveChannelsTransform"}
#: Parameters that detaug does not have, which the table names.
LEFT_OUT = {"TimedComposeTransforms": {"print_every", "name", "p_write"}}


def table() -> dict[str, list[str]]:
    """Return the documentation's table: batchgeneratorsv2's name -> detaug's names."""
    rows = re.findall(r"^\| (`\w.*?) \| (`.*?) \|", DOCUMENTATION.read_text(), re.MULTILINE)
    names = {}
    for left, right in rows:
        for original in re.findall(r"`(\w+)`", left):
            if original[0].isupper():
                names[original] = re.findall(r"`(\w+)`", right.partition(":")[0])
    return names


def subclasses_of(cls: type) -> Iterator[type]:
    """Yield batchgeneratorsv2's classes below a class."""
    for child in cls.__subclasses__():
        if child.__module__.startswith("batchgeneratorsv2."):
            yield child
            yield from subclasses_of(child)


def original_classes() -> list[type]:
    """Return batchgeneratorsv2's transforms that have a counterpart, the base class first."""
    package = pytest.importorskip("batchgeneratorsv2")
    from batchgeneratorsv2.transforms.base.basic_transform import BasicTransform

    for module in pkgutil.walk_packages(package.__path__, "batchgeneratorsv2."):
        if ".benchmarks" not in module.name:
            importlib.import_module(module.name)

    classes = sorted(set(subclasses_of(BasicTransform)), key=attrgetter("__name__"))
    return [BasicTransform, *(cls for cls in classes if cls.__name__ not in NOT_HERE)]


def test_every_transform_of_batchgeneratorsv2_is_in_the_table_or_said_to_be_missing() -> None:
    assert {cls.__name__ for cls in original_classes()} <= set(table())
    missing = " and ".join(f"`{name}`" for name in sorted(NOT_HERE))
    assert f"{missing} have no counterpart" in DOCUMENTATION.read_text()


def test_every_name_in_the_table_is_there() -> None:
    for original, names in table().items():
        for name in names:
            assert hasattr(transforms, name), name
        assert getattr(bgv2, original) is getattr(transforms, names[0])


def has_own_constructor(cls: type) -> bool:
    if cls.__init__ is object.__init__:
        return False
    return "self" in inspect.signature(cls.__init__).parameters


def test_constructors_take_the_same_parameters_in_the_same_order() -> None:
    for cls in original_classes():
        if not has_own_constructor(cls):
            continue
        parameters = inspect.signature(getattr(bgv2, cls.__name__)).parameters
        expected = dict(inspect.signature(cls).parameters)
        for name in LEFT_OUT.get(cls.__name__, ()):
            del expected[name]
        names = [name for name in parameters if name in expected]
        assert names == list(expected), cls.__name__
        for name, parameter in expected.items():
            if isinstance(parameter.default, (tuple, list, set)):
                continue
            assert parameters[name].default == parameter.default, f"{cls.__name__}.{name}"
