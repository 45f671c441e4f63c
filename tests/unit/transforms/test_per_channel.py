"""Functions that are shared by transforms of single channels."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.transforms.building.per_channel import as_volume, per_axis, rescale


def test_rescaling_loses_nothing_of_a_centre_that_float32_rounds() -> None:
    values = np.array([1.0, 2.0], np.float32)
    rescale(values, center=1 + 2.0**-30, factor=2.0**20, offset=5.0)
    expected = (np.array([1.0, 2.0]) - (1 + 2.0**-30)) * 2.0**20 + 5
    assert values.tolist() == expected.astype(np.float32).tolist()


#: Pairs of a channel's shape and the shape of the volume that kernels get.
VOLUMES = [
    ((4, 5, 6), (4, 5, 6)),
    ((4, 1, 6), (4, 1, 6)),
    ((1, 5, 6), (5, 1, 6)),
    ((4, 5, 1), (4, 1, 5)),
    ((4, 5), (4, 1, 5)),
    ((4, 1), (1, 1, 4)),
    ((1, 1, 1), (1, 1, 1)),
]


@pytest.mark.parametrize(("shape", "volume"), VOLUMES)
def test_the_last_long_axis_is_the_one_that_kernels_walk_along(
    shape: tuple[int, ...], volume: tuple[int, ...]
) -> None:
    assert as_volume(np.zeros(shape, np.float32)).shape == volume


def test_values_of_axes_follow_their_axes() -> None:
    assert per_axis([7, 8, 9], (4, 5, 6), 0) == (7, 8, 9)
    assert per_axis([7, 8, 9], (4, 1, 6), 0) == (7, 0, 9)
    assert per_axis([7, 8], (4, 5), 0) == (7, 0, 8)
