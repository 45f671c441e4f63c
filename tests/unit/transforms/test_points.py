"""Keypoints and boxes under maps of space."""

import math

import numpy as np
import pytest

from detaug.transforms.geometry.points import map_points, map_rows

TURN = [[math.cos(0.3), -math.sin(0.3)], [math.sin(0.3), math.cos(0.3)]]


def test_a_box_becomes_the_box_around_its_corners():
    box = np.array([[1.0, 2.0, 5.0, 3.0]])
    corners = map_points(np.array([[1, 2], [1, 3], [5, 2], [5, 3]]), TURN, (1, 1))
    result = map_rows("bbox", box, 2, lambda points: map_points(points, TURN, (1, 1)))
    np.testing.assert_allclose(result, [[*corners.min(axis=0), *corners.max(axis=0)]], rtol=1e-15)


def test_absent_objects_pass_through_and_rows_stay_in_place():
    points = np.array([[1, 2], [np.nan, 4], [3, np.inf], [5, 6]], np.float32)
    result = map_rows("keypoints", points, 2, lambda p: p + 1)
    np.testing.assert_array_equal(result, np.array([[2, 3], [np.nan, 4], [3, np.inf], [6, 7]], np.float32))


@pytest.mark.parametrize(
    ("given", "back"),
    [(np.float16, np.float16), (np.float32, np.float32), (np.float64, np.float64), (np.int64, np.float32)],
)
def test_floating_types_are_kept_and_integers_become_float32(given, back):
    assert map_rows("keypoints", np.ones((2, 3), given), 3, lambda p: p + 0.5).dtype == back
    assert map_rows("bbox", np.ones((2, 6), given), 3, lambda p: p + 0.5).dtype == back


def test_no_objects_are_fine():
    assert map_rows("keypoints", np.zeros((0, 3)), 3, lambda p: p).shape == (0, 3)
    assert map_rows("bbox", np.zeros((0, 4)), 2, lambda p: p).shape == (0, 4)


def test_wrong_shapes_and_types_are_refused():
    with pytest.raises(ValueError, match=r"\(N, 6\), got \(2, 4\)"):
        map_rows("bbox", np.zeros((2, 4)), 3, lambda p: p)
    with pytest.raises(ValueError, match=r"\(N, 3\), got \(3,\)"):
        map_rows("keypoints", np.zeros(3), 3, lambda p: p)
    with pytest.raises(TypeError, match="bool"):
        map_rows("keypoints", np.zeros((2, 3), bool), 3, lambda p: p)
