"""Pictures of planes of a volume: which plane, its orientation, labels and special values."""

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


def zeros(*space: int) -> np.ndarray:
    """Return an image of one channel."""
    return np.zeros((1, *space), np.float32)


def test_labels_are_masks_outside_of_the_case_too_and_left_out_where_their_shape_is_another() -> (
    None
):
    labels = np.array([[[0, 1, 2], [-1, -1, 2]]], np.int16)
    (plane,) = planes_of(zeros(2, 3), labels)
    assert sorted(plane.masks) == [-1, 1, 2]
    np.testing.assert_array_equal(plane.masks[2], labels[0] == 2)
    (larger,) = planes_of(zeros(4, 6), labels)
    assert larger.masks == {}


def test_regions_may_overlap() -> None:
    regions = np.zeros((2, 2, 3), bool)
    regions[0] = True
    regions[1, 0] = True
    (plane,) = planes_of(zeros(2, 3), regions)
    assert sorted(plane.masks) == [1, 2]
    assert plane.masks[1].sum() == 6
    assert plane.masks[2].sum() == 3


def drawn(*planes: Plane, window: tuple[float, float] = (0, 1)) -> np.ndarray:
    """Return a picture of planes, (rows, columns, 3) from 0 to 1, with 40 pixels per voxel."""
    rows, columns = planes[0].image.shape
    height = rows * planes[0].aspect
    figure = Figure(figsize=(columns, height), dpi=40)
    axes = figure.add_axes((0, 0, 1, 1))
    draw(axes, planes, window)
    axes.set_ylim(-height, 0)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    return np.asarray(canvas.buffer_rgba())[..., :3] / 255


def test_thick_slices_are_drawn_as_thick_as_they_are() -> None:
    planes = planes_of(zeros(8, 40, 40), spacing=(6, 1, 1))
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
    (plane,) = planes_of(zeros(6, 6), labels)
    colour = np.array(to_rgb(OKABE_ITO[1]))
    # Antialiasing mixes a thin line with the black around it.
    is_coloured = (colour - drawn(plane) < 0.7 * colour).all(-1)
    assert is_coloured.any()
    for pixels in np.nonzero(is_coloured):
        assert pixels.min() > 60
        assert pixels.max() < 180
    assert not is_coloured[110:130, 110:130].any()


def test_nan_and_infinity_are_coloured_and_leave_the_grey_scale_alone() -> None:
    image = np.tile(np.linspace(0, 1, 10, dtype=np.float32), (1, 10, 1))
    image[0, 0, :3] = [np.nan, np.inf, -np.inf]
    (plane,) = planes_of(image)
    low, high = window_of([plane])
    assert low == pytest.approx(-0.05, abs=0.02)
    assert high == pytest.approx(1.25, abs=0.02)
    picture = drawn(plane, window=(low, high))
    coloured = picture[5:35, 5:115]
    expected = np.broadcast_to(to_rgb(NOT_FINITE), coloured.shape)
    np.testing.assert_allclose(coloured, expected, atol=0.02)
    last_grey = (1 - low) / (high - low)
    np.testing.assert_allclose(picture[50:, -5:], last_grey, atol=0.02)


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
