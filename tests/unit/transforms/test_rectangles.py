"""Blank rectangles: where they lie, how large they are, what is in them."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.transforms.rectangles import BlankRectangle


def extents(transform):
    """Return the lengths of the edges of the one rectangle that is drawn, in voxels."""
    params = transform.sample(np.random.default_rng(0), {"image": (1, 8, 8)})
    ((corners,),) = params["rectangles"]
    lower, upper = corners
    return np.subtract(upper, lower).tolist()


def test_fixed_sizes_for_all_axes_and_for_each():
    assert extents(BlankRectangle(3, 0, 1)) == [3, 3]
    assert extents(BlankRectangle((4, 2), 0, 1)) == [4, 2]


def test_a_square_has_one_size():
    first, second = extents(BlankRectangle([[2, 6], [3, 9]], 0, 1, True))
    assert first == second


IMAGE = np.arange(16, dtype=np.float32).reshape(1, 4, 4)


def one_more_than_the_largest(x):
    return float(x.max()) + 1


def any_number(x, rng):
    return rng.random()


def test_a_callable_sees_the_rectangle_as_it_is_then():
    transform = BlankRectangle(4, one_more_than_the_largest, 2)
    result = transform(image=IMAGE, rng=np.random.default_rng(0))["image"]
    assert (result == 17).all()


def test_a_callable_may_draw():
    transform = BlankRectangle(2, any_number, 3)
    result = transform(image=IMAGE, rng=np.random.default_rng(5))["image"]
    again = transform(image=IMAGE, rng=np.random.default_rng(5))["image"]
    assert result.tobytes() == again.tobytes()
    assert result.tobytes() != IMAGE.tobytes()


#: Pairs of the lower and the upper corner, each with one coordinate for all axes.
CORNERS = [(-3, 4), (2, 90), (-5, -2), (4, 6), (50, 60), (3, 3)]


def within(corners):
    """Return a rectangle as the index of its part within the image."""
    lower, upper = np.maximum(corners, 0)
    return tuple(slice(start, stop) for start, stop in zip(lower, upper, strict=True))


@pytest.mark.parametrize("space", [(6, 7), (5, 6, 7)])
def test_of_rectangles_of_a_larger_image_the_part_within_is_filled(space):
    axes = len(space)
    rectangles = [([lower] * axes, [upper] * axes) for lower, upper in CORNERS]
    beside_the_last_axis = ([0] * (axes - 1) + [-5], [3] * (axes - 1) + [-2])
    rectangles.append(beside_the_last_axis)
    image = np.random.default_rng(0).normal(size=(1, *space)).astype(np.float32)
    expected = image.copy()
    for number, corners in enumerate(rectangles, 1):
        params = {
            "apply_channel": [True],
            "rectangles": [rectangles[:number]],
            "values": [list(range(number))],
        }
        result = BlankRectangle(2, 0.0, 1).apply({"image": image}, params)["image"]
        expected[0][within(corners)] = number - 1
        np.testing.assert_array_equal(result, expected)
