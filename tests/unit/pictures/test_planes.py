"""Which plane is cut from a volume, which way up, and what becomes of labels and of odd values."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from detaug.tools.pictures.slices import (
    NOT_FINITE,
    OKABE_ITO,
    OUTSIDE,
    Plane,
    colour_of,
    draw,
    planes_of,
    window_of,
)


def test_planes_are_cut_across_each_axis_and_the_first_runs_upwards() -> None:
    volume = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)
    first, second, third = (plane.image for plane in planes_of(volume, channel=1))
    np.testing.assert_array_equal(first, volume[1, 1])
    np.testing.assert_array_equal(second, volume[1, ::-1, 2])
    np.testing.assert_array_equal(third, volume[1, ::-1, :, 3])


def test_labels_are_masks_outside_of_the_case_too_and_left_out_where_their_shape_is_another() -> (
    None
):
    labels = np.array([[[0, 1, 2], [-1, -1, 2]]], np.int16)
    (plane,) = planes_of(np.zeros((1, 2, 3), np.float32), labels)
    assert sorted(plane.masks) == [-1, 1, 2]
    assert plane.masks[2].tolist() == [[False, False, True], [False, False, True]]
    assert planes_of(np.zeros((1, 4, 6), np.float32), labels)[0].masks == {}


def test_regions_may_overlap() -> None:
    regions = np.zeros((2, 2, 3), bool)
    regions[0], regions[1, 0] = True, True
    (plane,) = planes_of(np.zeros((1, 2, 3), np.float32), regions)
    assert {label: int(mask.sum()) for label, mask in plane.masks.items()} == {1: 6, 2: 3}


def drawn(*planes: Plane, window: tuple[float, float] = (0, 1)) -> np.ndarray:
    """The pixels of a picture that the planes fill, 40 for a voxel's edge."""
    rows, columns = planes[0].image.shape
    figure = Figure(figsize=(columns, rows * planes[0].aspect), dpi=40)
    axes = figure.add_axes((0, 0, 1, 1))
    draw(axes, planes, window)
    axes.set_ylim(-rows * planes[0].aspect, 0)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3] / 255


def test_thick_slices_are_drawn_as_thick_as_they_are() -> None:
    planes = planes_of(np.zeros((1, 8, 40, 40), np.float32), spacing=(6, 1, 1))
    assert [plane.aspect for plane in planes] == [1, 6, 6]
    axes = Figure().add_subplot()
    draw(axes, planes, (0, 1))
    assert [image.get_extent() for image in axes.images] == [
        [0, 40, -40, 0],
        [0, 40, -90, -42],
        [0, 40, -140, -92],
    ]


def test_outline_runs_around_its_label_in_its_colour() -> None:
    labels = np.zeros((1, 6, 6), np.int16)
    labels[0, 2:4, 2:4] = 2
    (plane,) = planes_of(np.zeros((1, 6, 6), np.float32), labels)
    difference = np.array(to_rgb(OKABE_ITO[1])) - drawn(
        plane
    )  # thin lines are mixed with the black around them
    coloured = (difference < 0.7 * np.array(to_rgb(OKABE_ITO[1]))).all(-1)
    rows, columns = np.nonzero(coloured)
    assert coloured.any()
    assert (rows.min() > 60, rows.max() < 180, columns.min() > 60, columns.max() < 180) == (
        True,
    ) * 4
    assert not coloured[110:130, 110:130].any()


def test_nan_and_infinity_are_coloured_and_leave_the_grey_scale_alone() -> None:
    image = np.tile(np.linspace(0, 1, 10, dtype=np.float32), (1, 10, 1))
    image[0, 0, :3] = np.nan, np.inf, -np.inf
    (plane,) = planes_of(image)
    low, high = window_of([plane])
    assert (low, high) == pytest.approx((-0.05, 1.25), abs=0.02)
    picture = drawn(plane, window=(low, high))
    np.testing.assert_allclose(
        picture[5:35, 5:115], np.broadcast_to(to_rgb(NOT_FINITE), (30, 110, 3)), atol=0.02
    )
    np.testing.assert_allclose(picture[50:, -5:], (1 - low) / (high - low), atol=0.02)


@pytest.mark.parametrize("value", [0.0, 7.5, np.nan])
def test_image_without_any_contrast_has_a_grey_scale(value: float) -> None:
    (plane,) = planes_of(np.full((1, 5, 5), value, np.float32), np.ones((1, 5, 5), np.int16))
    low, high = window_of([plane])
    assert low < high
    assert drawn(plane, window=(low, high)).shape == (200, 200, 3)


def test_colours_are_okabe_and_itos_and_come_again_after_seven_labels() -> None:
    assert len(set(OKABE_ITO)) == 7
    assert colour_of(1) == colour_of(8) == OKABE_ITO[0]
    assert colour_of(-1) == OUTSIDE
