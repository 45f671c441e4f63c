"""batchgeneratorsv2's transforms are here under their own names, with the same parameters."""

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

# Without a counterpart; the documentation says so below the table.
NOT_HERE = {"ChannelMisalignmentTransform", "MoveChannelsTransform"}
# parameters that are left out; the table says so
LEFT_OUT = {"TimedComposeTransforms": {"print_every", "name", "p_write"}}


def table() -> dict[str, list[str]]:
    """batchgeneratorsv2's name -> the names here, as the documentation has them."""
    rows = re.findall(r"^\| (`\w.*?) \| (`.*?) \|", DOCUMENTATION.read_text(), re.MULTILINE)
    names = {}
    for left, right in rows:
        for theirs in re.findall(r"`(\w+)`", left):
            if theirs[0].isupper():
                names[theirs] = re.findall(r"`(\w+)`", right.partition(":")[0])
    return names


def below(kind: type) -> Iterator[type]:
    """Yield batchgeneratorsv2's subclasses of a class."""
    for child in kind.__subclasses__():
        if child.__module__.startswith("batchgeneratorsv2."):
            yield child
            yield from below(child)


def their_classes() -> list[type]:
    package = pytest.importorskip("batchgeneratorsv2")
    from batchgeneratorsv2.transforms.base.basic_transform import BasicTransform

    for module in pkgutil.walk_packages(package.__path__, "batchgeneratorsv2."):
        if ".benchmarks" not in module.name:
            importlib.import_module(module.name)

    classes = sorted(set(below(BasicTransform)), key=attrgetter("__name__"))
    return [BasicTransform, *(kind for kind in classes if kind.__name__ not in NOT_HERE)]


def test_every_transform_of_batchgeneratorsv2_is_in_the_table_or_said_to_be_missing() -> None:
    assert {kind.__name__ for kind in their_classes()} <= set(table())
    missing = " and ".join(f"`{name}`" for name in sorted(NOT_HERE))
    assert f"{missing} have no counterpart" in DOCUMENTATION.read_text()


def test_every_name_in_the_table_is_there() -> None:
    for theirs, ours in table().items():
        for name in ours:
            assert hasattr(transforms, name), name
        assert getattr(bgv2, theirs) is getattr(transforms, ours[0])


def has_own_constructor(kind: type) -> bool:
    if kind.__init__ is object.__init__:
        return False
    return "self" in inspect.signature(kind.__init__).parameters


def test_constructors_take_the_same_parameters_in_the_same_order() -> None:
    for kind in their_classes():
        if not has_own_constructor(kind):
            continue
        ours = inspect.signature(getattr(bgv2, kind.__name__)).parameters
        theirs = dict(inspect.signature(kind).parameters)
        for name in LEFT_OUT.get(kind.__name__, ()):
            del theirs[name]
        assert [name for name in ours if name in theirs] == list(theirs), kind.__name__
        for name, parameter in theirs.items():
            if isinstance(parameter.default, (tuple, list, set)):
                continue
            assert ours[name].default == parameter.default, f"{kind.__name__}.{name}"
