"""What a pipeline declares itself to be."""

from __future__ import annotations

import functools

import numpy as np
from batchgenerators.transforms.abstract_transforms import Compose
from batchgenerators.transforms.noise_transforms import GaussianNoiseTransform
from batchgenerators.transforms.spatial_transforms import MirrorTransform

from detaug.identity import describe, differences


class Loader:
    def __init__(self, data, batch_size, order=(0, 1)):
        self._data = data
        self.batch_size = batch_size
        self.order = order
        self.position = 0


def lines(**changes):
    arguments = {"data": list(range(1000)), "batch_size": 2, **changes}
    return describe(Loader(**arguments), "loader")


def test_equal_arguments_are_equal_and_state_does_not_count():
    loader = Loader(list(range(1000)), 2)
    before = describe(loader, "loader")
    loader.position = 17
    loader.cache = {}
    assert describe(loader, "loader") == before == lines()


def test_a_class_a_parameter_or_the_amount_of_data_makes_another_pipeline():
    class Other(Loader):
        pass

    assert describe(Other(list(range(1000)), 2), "loader") != lines()
    for change in ({"batch_size": 3}, {"order": (1, 0)}, {"data": list(range(999))}):
        assert lines(**change) != lines()


def test_the_difference_is_shown():
    text = differences(lines(batch_size=3), lines())
    assert text == "loader.batch_size: here 3, in the state 2"


def test_nested_transforms_and_partials_are_looked_into():
    def pipeline(p):
        return Compose([MirrorTransform(axes=(0, 1)), GaussianNoiseTransform(p_per_sample=p)])

    assert describe(pipeline(0.1), "t") == describe(pipeline(0.1), "t")
    assert "p_per_sample: here 0.2, in the state 0.1" in differences(
        describe(pipeline(0.2), "t"), describe(pipeline(0.1), "t")
    )
    assert describe(functools.partial(max, 1), "t") != describe(functools.partial(max, 2), "t")


def test_no_address_enters_a_description():
    class Opaque:
        def __init__(self, thing, function, array):
            self.thing, self.function, self.array = thing, function, array

    one, other = (describe(Opaque(object(), lambda: 0, np.zeros(500)), "x") for _ in range(2))
    assert one == other
    assert not any("0x" in line for line in one)
