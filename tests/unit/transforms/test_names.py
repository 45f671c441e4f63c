"""batchgeneratorsv2's transforms are here under their own names, with the same parameters."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator
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
    return {
        theirs: re.findall(r"`(\w+)`", ours.partition(":")[0])
        for left, ours in rows
        for theirs in re.findall(r"`(\w+)`", left)
        if theirs[0].isupper()
    }


def their_classes() -> list[type]:
    package = pytest.importorskip("batchgeneratorsv2")
    from batchgeneratorsv2.transforms.base.basic_transform import BasicTransform

    for module in pkgutil.walk_packages(package.__path__, "batchgeneratorsv2."):
        if ".benchmarks" not in module.name:
            importlib.import_module(module.name)

    def below(each: type) -> Iterator[type]:
        for child in each.__subclasses__():
            if child.__module__.startswith("batchgeneratorsv2."):
                yield child
                yield from below(child)

    classes = sorted(set(below(BasicTransform)), key=lambda each: each.__name__)
    return [BasicTransform, *(each for each in classes if each.__name__ not in NOT_HERE)]


def test_every_transform_of_batchgeneratorsv2_is_in_the_table_or_said_to_be_missing() -> None:
    assert {each.__name__ for each in their_classes()} <= set(table())
    missing = " and ".join(f"`{name}`" for name in sorted(NOT_HERE))
    assert f"{missing} have no counterpart" in DOCUMENTATION.read_text()


def test_every_name_in_the_table_is_there() -> None:
    for theirs, ours in table().items():
        for name in ours:
            assert hasattr(transforms, name), name
        assert getattr(bgv2, theirs) is getattr(transforms, ours[0])


def test_constructors_take_the_same_parameters_in_the_same_order() -> None:
    for each in their_classes():
        if (
            "self" in inspect.signature(each.__init__).parameters
            and each.__init__ is not object.__init__
        ):
            own = getattr(bgv2, each.__name__)
            theirs = {
                name: parameter
                for name, parameter in inspect.signature(each).parameters.items()
                if name not in LEFT_OUT.get(each.__name__, set())
            }
            ours = inspect.signature(own).parameters
            assert [name for name in ours if name in theirs] == list(theirs), each.__name__
            for name, parameter in theirs.items():
                if parameter.default is inspect.Parameter.empty:
                    assert ours[name].default is inspect.Parameter.empty, f"{each.__name__}.{name}"
                elif not isinstance(parameter.default, (tuple, list, set)):
                    assert ours[name].default == parameter.default, f"{each.__name__}.{name}"
