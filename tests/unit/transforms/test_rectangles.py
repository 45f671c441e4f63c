"""Blank rectangles: where they lie, how large they are, what is in them."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.transforms.rectangles import BlankRectangle


def test_fixed_sizes_for_all_axes_and_for_each():
    rng = np.random.default_rng(0)
    for size, expected in ((3, [3, 3]), ((4, 2), [4, 2])):
        ((corners,),) = BlankRectangle(size, 0, 1).sample(rng, {"image": (1, 8, 8)})["rectangles"]
        assert [upper - lower for lower, upper in zip(*corners, strict=True)] == expected
    ((corners,),) = BlankRectangle([[2, 6], [3, 9]], 0, 1, True).sample(rng, {"image": (1, 8, 8)})[
        "rectangles"
    ]
    assert len({upper - lower for lower, upper in zip(*corners, strict=True)}) == 1


def test_a_callable_sees_the_rectangle_as_it_is_then_and_may_draw():
    image = np.arange(16, dtype=np.float32).reshape(1, 4, 4)
    found = BlankRectangle(4, lambda x: float(x.max()) + 1, 2)(
        image=image, rng=np.random.default_rng(0)
    )["image"]
    assert (found == 17).all()
    drawing = BlankRectangle(2, lambda x, rng: rng.random(), 3)
    one, two = (drawing(image=image, rng=np.random.default_rng(5))["image"] for _ in range(2))
    assert one.tobytes() == two.tobytes()
    assert one.tobytes() != image.tobytes()


@pytest.mark.parametrize("space", [(6, 7), (5, 6, 7)])
def test_of_rectangles_of_a_larger_image_the_part_within_is_filled(space):
    axes = len(space)
    corners = [(-3, 4), (2, 90), (-5, -2), (4, 6), (50, 60), (3, 3)]
    rectangles = [([lower] * axes, [upper] * axes) for lower, upper in corners]
    rectangles.append(([0] * (axes - 1) + [-5], [3] * (axes - 1) + [-2]))
    image = np.random.default_rng(0).normal(size=(1, *space)).astype(np.float32)
    for number in range(1, len(rectangles) + 1):
        chosen = rectangles[:number]
        params = {
            "apply_channel": [True],
            "rectangles": [chosen],
            "values": [list(range(5, 5 + number))],
        }
        found = BlankRectangle(2, 0.0, 1).apply({"image": image}, params)["image"]
        expected = image.copy()
        for (lower, upper), value in zip(chosen, params["values"][0], strict=True):
            expected[0][
                tuple(slice(max(a, 0), max(b, 0)) for a, b in zip(lower, upper, strict=True))
            ] = value
        np.testing.assert_array_equal(found, expected)
