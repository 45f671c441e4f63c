"""What is drawn: numbers evenly over their ranges, choices as likely as each other, gates with
their probabilities.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from scipy import stats

from detaug import SeedTree
from detaug import transforms as t

SHAPES = {"image": (3, 20, 20, 20)}
MANY = 3000
PATCH = (8, 8, 8)

Taken = Callable[[dict[str, Any]], Iterable[Any]]


def drawn(transform: t.Transform, taken: Taken, many: int = MANY) -> list[Any]:
    rng = SeedTree(7).generator()
    return [each for _ in range(many) for each in taken(transform.sample(rng, SHAPES))]


def under(key: str) -> Taken:
    return lambda params: params[key]


def alone(key: str) -> Taken:
    return lambda params: [params[key]]


def of_all_axes(key: str) -> Taken:
    return lambda params: [number for each in params[key] for number in each]


def spatial(**options: Any) -> t.SpatialTransform:
    return t.SpatialTransform(PATCH, 4, **{"random_crop": False, **options})


def between(points: list[float]) -> float:
    """Where the third one lies between the second and the last."""
    assert (points[0], points[-1]) == (0, 1)
    return (points[2] - points[1]) / (1 - points[1])


EVEN: dict[str, tuple[t.Transform, Taken, float, float]] = {
    "brightness": (t.MultiplicativeBrightness((0.5, 2), False), under("multipliers"), 0.5, 2),
    "brightness of all channels": (
        t.BrightnessAdditive(0.2, 0.5, True),
        lambda p: p["shift"][:1],
        0.2,
        0.5,
    ),
    "contrast": (t.Contrast((0.5, 2), True, False), under("multipliers"), 0.5, 2),
    "noise": (t.GaussianNoise((0.1, 0.5)), under("sigmas"), 0.1, 0.5),
    "Rician noise": (t.RicianNoise((0.1, 0.5)), alone("variance"), 0.1, 0.5),
    "blur": (t.GaussianBlur((0.5, 1)), of_all_axes("sigmas"), 0.5, 1),
    "low resolution": (
        t.SimulateLowResolution((0.5, 1), False, False, None),
        of_all_axes("scales"),
        0.5,
        1,
    ),
    "sharpening": (t.Sharpening((0.1, 1)), under("strengths"), 0.1, 1),
    "lower percentile": (t.CutOffOutliers((1, 5), 99), lambda p: [p["percentiles"][0][0]], 1, 5),
    "upper percentile": (t.CutOffOutliers(1, (90, 99)), lambda p: [p["percentiles"][0][1]], 90, 99),
    "radius": (t.ApplyRandomBinaryOperator([0], strel_size=(1, 3)), under("strel_size"), 1, 3),
    "bias": (t.BiasField((-0.2, 0.6)), lambda p: p["coefficients"][0][:3], -0.2, 0.6),
    "slices' distance": (t.Anisotropy(), lambda p: p["downsampling"][:1], 1.5, 5),
    "cut k-space": (t.GibbsNoise((0.2, 0.7)), lambda p: p["alphas"][:1], 0.2, 0.7),
    "ghosts' intensity": (t.Ghosting(), lambda p: [p["ghosts"][0]["intensity"]], 0.5, 1),
    "time of the second motion": (
        t.Motion(),
        lambda p: [3 * p["motions"][0]["times"][1] - 2],
        -0.3,
        0.3,
    ),
    "turns of motions": (
        t.Motion(),
        lambda p: p["motions"][0]["rotations"][1],
        -math.radians(10),
        math.radians(10),
    ),
    "control points": (t.HistogramShift(3), lambda p: p["control_points"][0][1:2], 0, 1),
    "later control points": (
        t.HistogramShift(4),
        lambda p: [between(p["control_points"][0])],
        0,
        1,
    ),
    "windows' middle": (t.LocalGamma((2, 9)), lambda p: p["kernels"][0]["loc"], -1, 2),
    "windows' strength": (
        t.BrightnessGradientAdditive(5, 0, (1, 4)),
        lambda p: [p["kernels"][0]["strength"]],
        1,
        4,
    ),
    "rectangles": (t.BlankRectangle(2, (-1.0, 3.0), 3), lambda p: p["values"][0], -1, 3),
    "center": (spatial(random_crop=True), under("center_location_in_pixels"), 4, 16),
    "scaling": (spatial(p_scaling=1, scaling=(0.7, 1.4)), lambda p: [p["affine"][1][1]], 0.7, 1.4),
    "shear": (spatial(p_shear=1, shear=(-0.2, 0.4)), lambda p: [p["affine"][0][1]], -0.2, 0.4),
    "translation": (
        spatial(p_translation=1, translation=(1, 3)),
        under("center_location_in_pixels"),
        11,
        13,
    ),
}


@pytest.mark.parametrize("name", EVEN)
def test_numbers_are_even_over_their_range(name: str) -> None:
    transform, taken, low, high = EVEN[name]
    assert (
        stats.kstest(drawn(transform, taken, 1500), stats.uniform(low, high - low).cdf).pvalue
        > 1e-3
    )


def test_added_brightness_of_each_channel_is_normal() -> None:
    shifts = drawn(t.BrightnessAdditive(0.2, 0.5, False), under("shift"), 1500)
    assert stats.kstest(shifts, stats.norm(0.2, 0.5).cdf).pvalue > 1e-3


def channels(params: dict[str, Any]) -> list[bool]:
    return [c in params["apply_to_channel"] for c in range(3)]


GATES: dict[str, tuple[t.Transform, Taken, float]] = {
    "gamma of two channels": (
        t.Gamma((0.5, 2), 0, False, 0.3, 1),
        lambda p: [all(channels(p)[:2])],
        0.09,
    ),
    "inverted gamma": (t.Gamma((0.5, 2), 0.2, False, 1, 0.7), under("invert_image"), 0.2),
    "retained statistics": (t.Gamma((0.5, 2), 0.2, False, 1, 0.7), under("retain_stats"), 0.7),
    "noise": (t.GaussianNoise((0.1, 0.5), 0.4), channels, 0.4),
    "blur": (t.GaussianBlur((0.5, 1), p_per_channel=0.3), under("apply_to_channel"), 0.3),
    "low resolution": (
        t.SimulateLowResolution(0.5, False, False, None, p_per_channel=0.3),
        channels,
        0.3,
    ),
    "median": (t.MedianFilter((2, 8), p_per_channel=0.5), under("apply_channel"), 0.5),
    "sharpening": (t.Sharpening(1, 0.5, 0.3, 0.2), under("apply_channel"), 0.3),
    "one strength": (t.Sharpening((0, 1), 0.5), lambda p: [len(set(p["strengths"])) == 1], 0.5),
    "clamping": (t.Sharpening(1, 0, 0.3, 0.2), under("clamp_intensities"), 0.2),
    "inversion": (t.InvertImage(0.4, 0.3, 0.5), alone("apply"), 0.4),
    "inversion of all": (
        t.InvertImage(0.4, 0.3, 0.5),
        lambda p: [all(channels(p))],
        0.4 * (0.3 + 0.7 / 8),
    ),
    "outliers": (t.CutOffOutliers(p_per_channel=0.6), under("percentiles"), 0.6),
    "retained deviation": (t.CutOffOutliers(1, 99, False, 0.6, 0.25), under("retain_std"), 0.15),
    "gradient": (t.BrightnessGradientAdditive(5, p_per_channel=0.4), under("kernels"), 0.4),
    "mirrored axis": (t.Mirror((0, 1, 2)), lambda p: [axis in p["axes"] for axis in range(3)], 0.5),
    "two mirrored axes": (t.Mirror((0, 1, 2)), lambda p: [{0, 2} <= set(p["axes"])], 0.25),
    "operator": (t.ApplyRandomBinaryOperator([2], p_per_label=0.3), alone("operators"), 0.3),
    "rotation or scaling": (
        spatial(p_rotation=0.2, p_scaling=0.25),
        alone("affine"),
        1 - 0.8 * 0.75,
    ),
    "shear": (spatial(p_shear=0.3), alone("affine"), 0.3),
    "translation": (spatial(p_translation=0.4), alone("affine"), 0.4),
    "deformation": (spatial(p_elastic_deform=0.3), alone("elastic"), 0.3),
}


@pytest.mark.parametrize("name", GATES)
def test_gates_open_with_their_probability(name: str) -> None:
    transform, taken, probability = GATES[name]
    found = drawn(transform, taken)
    assert stats.binomtest(sum(map(bool, found)), len(found), probability).pvalue > 1e-4


def turn(params: dict[str, Any]) -> list[Any]:
    return [(params["num_rot_per_combination"][0], *params["axis_combinations"][0])]


def size_of_first(params: dict[str, Any]) -> list[int]:
    lower, upper = params["rectangles"][0][0]
    return [high - low for low, high in zip(lower, upper, strict=True)]


RECTANGLES = t.BlankRectangle([[2, 6], [3, 9], [1, 20]], 0, (1, 5))
REGIONS = t.CoarseDropout(2, (3, 1, 3), max_holes=4, max_spatial_size=(6, -1, 3))
ONE_HOT = t.RemoveRandomConnectedComponentFromOneHotEncoding([2, 1])
CHOICES: dict[str, tuple[t.Transform, Taken, int]] = {
    "turns and planes": (t.Rot90(1), turn, 9),
    "orders of axes": (t.TransposeAxes((0, 1, 2)), lambda p: [tuple(p["axis_order"])], 6),
    "sizes of rectangles": (RECTANGLES, lambda p: size_of_first(p)[:1], 4),
    "numbers of rectangles": (RECTANGLES, lambda p: [len(p["rectangles"][0])], 4),
    "places of rectangles": (
        t.BlankRectangle(17, 0, 1),
        lambda p: [p["rectangles"][0][0][0][2]],
        4,
    ),
    "sizes, the upper end not included": (t.MedianFilter((2, 8)), under("filter_sizes"), 6),
    "operators": (t.ApplyRandomBinaryOperator([0, 1, 2]), under("operators"), 4),
    "orders of channels": (
        t.ApplyRandomBinaryOperator([0, 1, 2]),
        lambda p: [tuple(p["apply_to_channels"])],
        6,
    ),
    "orders of one-hot channels": (ONE_HOT, lambda p: [tuple(p["apply_to_channels"])], 2),
    "axes of slices": (t.Anisotropy((0, 2)), lambda p: p["axes"][:1], 2),
    "numbers of control points": (
        t.HistogramShift((3, 6)),
        lambda p: [len(p["control_points"][0])],
        4,
    ),
    "numbers of ghosts": (t.Ghosting(), lambda p: [p["ghosts"][0]["num_ghosts"]], 7),
    "axes of ghosts": (t.Ghosting(), lambda p: [p["ghosts"][0]["axis"]], 3),
    "numbers of regions": (t.CoarseDropout(2, 3, max_holes=4), lambda p: [len(p["holes"])], 3),
    "sizes of regions": (
        REGIONS,
        lambda p: [upper[0] - lower[0] for lower, upper in p["holes"]],
        4,
    ),
    "sizes of regions up to the whole": (
        REGIONS,
        lambda p: [upper[1] - lower[1] for lower, upper in p["holes"]],
        20,
    ),
    "places of regions": (REGIONS, lambda p: [lower[2] for lower, _ in p["holes"]], 18),
    "places of a crop": (t.RandomCrop((17, 18, 19)), lambda p: p["center"][:1], 4),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_as_likely_as_each_other(name: str) -> None:
    transform, taken, count = CHOICES[name]
    counts = Counter(drawn(transform, taken))
    assert len(counts) == count
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_numbers_of_turns_are_rounded_and_a_larger_crop_is_in_the_middle() -> None:
    assert set(drawn(t.Rot90((0.6, 3.4)), lambda p: [len(p["axis_combinations"])])) == {1, 2, 3}
    assert set(drawn(t.RandomCrop((40, 40, 40)), under("center"), 10)) == {10}


TOGETHER: dict[str, Callable[[bool], tuple[t.Transform, str]]] = {
    "bias": lambda one: (t.BiasField(synchronize_channels=one), "coefficients"),
    "ghosts": lambda one: (t.Ghosting(synchronize_channels=one), "ghosts"),
    "motion": lambda one: (t.Motion(synchronize_channels=one), "motions"),
    "spikes": lambda one: (t.Spikes(synchronize_channels=one), "spikes"),
    "windows": lambda one: (t.LocalContrast((2, 9), same_for_all_channels=one), "kernels"),
    "local contrast": lambda one: (t.LocalContrast((2, 9), same_for_all_channels=one), "contrasts"),
    "local gamma": lambda one: (t.LocalGamma((2, 9), same_for_all_channels=one), "gammas"),
    "local smoothing": lambda one: (
        t.LocalSmoothing((2, 9), same_for_all_channels=one),
        "strengths",
    ),
    "gradients": lambda one: (
        t.BrightnessGradientAdditive((2, 9), same_for_all_channels=one),
        "kernels",
    ),
    "brightness": lambda one: (t.MultiplicativeBrightness((0.5, 2), one), "multipliers"),
    "gamma": lambda one: (t.Gamma((0.5, 2), 0, one, 1, 1), "gamma"),
    "noise": lambda one: (t.GaussianNoise((0.1, 0.5), synchronize_channels=one), "sigmas"),
    "low resolution": lambda one: (t.SimulateLowResolution((0.5, 1), one, True, None), "scales"),
    "low resolution, each axis": lambda one: (
        t.SimulateLowResolution((0.5, 1), one, False, None),
        "scales",
    ),
    "median": lambda one: (
        t.MedianFilter((1, 15), p_same_for_each_channel=float(one)),
        "filter_sizes",
    ),
    "outliers": lambda one: (t.CutOffOutliers((1, 5), (90, 99), one), "percentiles"),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_channels_are_drawn_together_if_asked_and_else_apart(name: str) -> None:
    for one in (True, False):
        transform, key = TOGETHER[name](one)
        same = drawn(transform, lambda params, key=key: [len(set(map(str, params[key]))) == 1], 20)
        assert all(same) if one else not all(same)


def test_axes_are_drawn_together_if_asked_and_else_apart() -> None:
    for one in (True, False):
        blur = t.GaussianBlur((1, 5), synchronize_axes=one).sample(SeedTree(7).generator(), SHAPES)
        low = t.SimulateLowResolution((0.5, 1), False, one, None).sample(
            SeedTree(7).generator(), SHAPES
        )
        assert [len(set(each)) for each in (*blur["sigmas"], *low["scales"])] == [
            1 if one else 3
        ] * 6
    shared = t.GaussianBlur((1, 5), synchronize_channels=True).sample(
        SeedTree(7).generator(), SHAPES
    )
    assert len(shared["sigmas"]) == 3


def test_a_key_is_another_one_every_time() -> None:
    assert len(set(drawn(t.GaussianNoise(0.1), lambda params: [params["key"]]))) == MANY
