"""Which plane is cut from a volume, which way up, and what becomes of labels and of odd values."""

from __future__ import annotations

import numpy as np
import pytest

from detaug.pictures.planes import NOT_FINITE, OKABE_ITO, OUTSIDE, colour_of, fits, planes_of, rendered, rgb, window_of


def test_planes_are_cut_across_each_axis_and_the_first_runs_upwards() -> None:
    volume = np.arange(2 * 3 * 5 * 7, dtype=np.float32).reshape(2, 3, 5, 7)
    first, second, third = (plane.image for plane in planes_of(volume, channel=1))
    np.testing.assert_array_equal(first, volume[1, 1])
    np.testing.assert_array_equal(second, volume[1, ::-1, 2])
    np.testing.assert_array_equal(third, volume[1, ::-1, :, 3])


def test_labels_are_masks_outside_of_the_case_too_and_left_out_where_their_shape_is_another() -> None:
    labels = np.array([[[0, 1, 2], [-1, -1, 2]]], np.int16)
    (plane,) = planes_of(np.zeros((1, 2, 3), np.float32), labels)
    assert sorted(plane.masks) == [-1, 1, 2]
    assert plane.masks[2].tolist() == [[False, False, True], [False, False, True]]
    assert planes_of(np.zeros((1, 4, 6), np.float32), labels)[0].masks == {}


def test_regions_may_overlap_and_deep_supervision_shows_its_first_level() -> None:
    regions = np.zeros((2, 2, 3), bool)
    regions[0], regions[1, 0] = True, True
    (plane,) = planes_of(np.zeros((1, 2, 3), np.float32), [regions, regions[:, ::2, ::2]])
    assert {label: int(mask.sum()) for label, mask in plane.masks.items()} == {1: 6, 2: 3}


def test_thick_slices_are_drawn_as_thick_as_they_are() -> None:
    planes = planes_of(np.zeros((1, 8, 40, 40), np.float32), spacing=(6, 1, 1))
    assert [rendered(plane, 40, (0, 1)).shape[0] for plane in planes] == [40, 48, 48]


def test_outline_lies_within_its_label_in_its_colour() -> None:
    labels = np.zeros((1, 20, 20), np.int16)
    labels[0, 5:15, 5:15] = 2
    (plane,) = planes_of(np.zeros((1, 20, 20), np.float32), labels)
    picture = rendered(plane, 20, (0, 1), thickness=1)
    coloured = (picture == rgb(OKABE_ITO[1])).all(-1)
    assert coloured.sum() == 36
    assert coloured[5, 5:15].all()
    assert not coloured[6:14, 6:14].any()


def test_nan_and_infinity_are_coloured_and_leave_the_grey_scale_alone() -> None:
    image = np.tile(np.linspace(0, 1, 100, dtype=np.float32), (1, 100, 1))
    image[0, :2, :2] = np.nan, np.inf
    image[0, 0, 0] = -np.inf
    (plane,) = planes_of(image)
    low, high = window_of([plane])
    assert 0 <= low < high <= 1
    assert fits((low, high), [plane])
    assert not fits((100, 200), [plane])
    picture = rendered(plane, 100, (low, high))
    assert (picture[:2, :2] == rgb(NOT_FINITE)).all()
    assert (picture[2:, -1] > 250).all()


@pytest.mark.parametrize("value", [0.0, 7.5, np.nan])
def test_image_without_any_contrast_has_a_grey_scale(value: float) -> None:
    (plane,) = planes_of(np.full((1, 5, 5), value, np.float32))
    low, high = window_of([plane])
    assert low < high
    assert rendered(plane, 5, (low, high)).shape == (5, 5, 3)


def test_colours_are_okabe_and_itos_and_come_again_after_seven_labels() -> None:
    assert len(set(OKABE_ITO)) == 7
    assert colour_of(1) == colour_of(8) == OKABE_ITO[0]
    assert colour_of(-1) == OUTSIDE
