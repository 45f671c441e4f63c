"""Distributions of what transforms draw: uniform numbers and choices, gates with a probability."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import stats

from detaug import SeedTree
from detaug import transforms as t
from detaug.transforms.building import draws

SHAPES = {"image": (3, 20, 20, 20)}
#: Number of times that params are drawn.
MANY = 3000
PATCH = (8, 8, 8)

#: A function that reads values of one kind from a transform's params.
Read = Callable[[dict[str, Any]], Iterable[Any]]


def drawn(transform: t.Transform, read: Read, num_draws: int = MANY) -> list[Any]:
    """Return the values that `read` gives for the params of all draws, in one list."""
    rng = SeedTree(7).generator()
    values: list[Any] = []
    for _ in range(num_draws):
        values.extend(read(transform.sample(rng, SHAPES)))
    return values


def at(params: Any, path: tuple[Any, ...]) -> Any:
    """Return the part of the params at a path of keys, indices and slices."""
    for step in path:
        params = params[step]
    return params


def under(*path: Any) -> Read:
    """Return a function that reads the items of the param at a path."""

    def read(params: dict[str, Any]) -> Iterable[Any]:
        return at(params, path)

    return read


def alone(*path: Any) -> Read:
    """Return a function that reads the param at a path as one value."""

    def read(params: dict[str, Any]) -> Iterable[Any]:
        return [at(params, path)]

    return read


def number_of(*path: Any) -> Read:
    """Return a function that reads the length of the param at a path."""

    def read(params: dict[str, Any]) -> Iterable[Any]:
        return [len(at(params, path))]

    return read


def as_tuple(key: str) -> Read:
    """Return a function that reads a list as one value."""

    def read(params: dict[str, Any]) -> Iterable[Any]:
        return [tuple(params[key])]

    return read


def of_all_axes(key: str) -> Read:
    """Return a function that reads the numbers of all channels and axes."""

    def read(params: dict[str, Any]) -> Iterable[Any]:
        return itertools.chain.from_iterable(params[key])

    return read


def spatial(**options: Any) -> t.SpatialTransform:
    return t.SpatialTransform(PATCH, 4, **{"random_crop": False, **options})


def time_of_second_motion(params: dict[str, Any]) -> list[float]:
    return [3 * params["motions"][0]["times"][1] - 2]


#: Name -> (transform, function that reads numbers, ends of their range).
EVEN: dict[str, tuple[t.Transform, Read, float, float]] = {
    "brightness": (t.MultiplicativeBrightness((0.5, 2), False), under("multipliers"), 0.5, 2),
    "brightness of all channels": (
        t.BrightnessAdditive(0.2, 0.5, True),
        under("shift", slice(1)),
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
    "lower percentile": (t.CutOffOutliers((1, 5), 99), alone("percentiles", 0, 0), 1, 5),
    "upper percentile": (t.CutOffOutliers(1, (90, 99)), alone("percentiles", 0, 1), 90, 99),
    "radius": (t.ApplyRandomBinaryOperator([0], strel_size=(1, 3)), under("strel_size"), 1, 3),
    "bias": (t.BiasField((-0.2, 0.6)), under("coefficients", 0, slice(3)), -0.2, 0.6),
    "slices' distance": (t.Anisotropy(), under("downsampling", slice(1)), 1.5, 5),
    "cut k-space": (t.GibbsNoise((0.2, 0.7)), under("alphas", slice(1)), 0.2, 0.7),
    "ghosts' intensity": (t.Ghosting(), alone("ghosts", 0, "intensity"), 0.5, 1),
    "time of the second motion": (
        t.Motion(),
        time_of_second_motion,
        -0.3,
        0.3,
    ),
    "turns of motions": (
        t.Motion(),
        under("motions", 0, "rotations", 1),
        -math.radians(10),
        math.radians(10),
    ),
    "windows' middle": (t.LocalGamma((2, 9)), under("kernels", 0, "loc"), -1, 2),
    "windows' strength": (
        t.BrightnessGradientAdditive(5, 0, (1, 4)),
        alone("kernels", 0, "strength"),
        1,
        4,
    ),
    "rectangles": (t.BlankRectangle(2, (-1.0, 3.0), 3), under("values", 0), -1, 3),
    "center": (spatial(random_crop=True), under("center_location_in_pixels"), 4, 16),
    "scaling": (spatial(p_scaling=1, scaling=(0.7, 1.4)), alone("affine", 1, 1), 0.7, 1.4),
    "shear": (spatial(p_shear=1, shear=(-0.2, 0.4)), alone("affine", 0, 1), -0.2, 0.4),
    "translation": (
        spatial(p_translation=1, translation=(1, 3)),
        under("center_location_in_pixels"),
        11,
        13,
    ),
}


@pytest.mark.parametrize("name", EVEN)
def test_numbers_are_even_over_their_range(name: str) -> None:
    transform, read, low, high = EVEN[name]
    uniform = stats.uniform(low, high - low)
    assert stats.kstest(drawn(transform, read, 1500), uniform.cdf).pvalue > 1e-3


def test_added_brightness_of_each_channel_is_normal() -> None:
    shifts = drawn(t.BrightnessAdditive(0.2, 0.5, False), under("shift"), 1500)
    assert stats.kstest(shifts, stats.norm(0.2, 0.5).cdf).pvalue > 1e-3


def channels(params: dict[str, Any]) -> list[bool]:
    return [channel in params["apply_to_channel"] for channel in range(3)]


def are_first_two_channels_changed(params: dict[str, Any]) -> list[bool]:
    return [all(channels(params)[:2])]


def are_all_channels_changed(params: dict[str, Any]) -> list[bool]:
    return [all(channels(params))]


def is_one_strength(params: dict[str, Any]) -> list[bool]:
    return [len(set(params["strengths"])) == 1]


def mirrored_axes(params: dict[str, Any]) -> list[bool]:
    return [axis in params["axes"] for axis in range(3)]


def are_two_axes_mirrored(params: dict[str, Any]) -> list[bool]:
    return [{0, 2} <= set(params["axes"])]


#: Name -> (transform, function that reads whether a gate was open, its probability).
GATES: dict[str, tuple[t.Transform, Read, float]] = {
    "gamma of two channels": (
        t.Gamma((0.5, 2), 0, False, 0.3, 1),
        are_first_two_channels_changed,
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
    "one strength": (t.Sharpening((0, 1), 0.5), is_one_strength, 0.5),
    "clamping": (t.Sharpening(1, 0, 0.3, 0.2), under("clamp_intensities"), 0.2),
    "inversion": (t.InvertImage(0.4, 0.3, 0.5), alone("apply"), 0.4),
    "inversion of all": (
        t.InvertImage(0.4, 0.3, 0.5),
        are_all_channels_changed,
        0.4 * (0.3 + 0.7 / 8),
    ),
    "outliers": (t.CutOffOutliers(p_per_channel=0.6), under("percentiles"), 0.6),
    "retained deviation": (t.CutOffOutliers(1, 99, False, 0.6, 0.25), under("retain_std"), 0.15),
    "gradient": (t.BrightnessGradientAdditive(5, p_per_channel=0.4), under("kernels"), 0.4),
    "mirrored axis": (t.Mirror((0, 1, 2)), mirrored_axes, 0.5),
    "two mirrored axes": (t.Mirror((0, 1, 2)), are_two_axes_mirrored, 0.25),
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
    transform, read, probability = GATES[name]
    answers = [bool(answer) for answer in drawn(transform, read)]
    assert stats.binomtest(sum(answers), len(answers), probability).pvalue > 1e-4


def turn(params: dict[str, Any]) -> list[Any]:
    return [(params["num_rot_per_combination"][0], *params["axis_combinations"][0])]


def edge_of_first(params: dict[str, Any]) -> list[int]:
    lower, upper = params["rectangles"][0][0]
    return [upper[0] - lower[0]]


RECTANGLES = t.BlankRectangle([[2, 6], [3, 9], [1, 20]], 0, (1, 5))
ONE_HOT = t.RemoveRandomConnectedComponentFromOneHotEncoding([2, 1])
#: Name -> (transform, function that reads a choice, number of possible choices).
CHOICES: dict[str, tuple[t.Transform, Read, int]] = {
    "turns and planes": (t.Rot90(1), turn, 9),
    "orders of axes": (t.TransposeAxes((0, 1, 2)), as_tuple("axis_order"), 6),
    "sizes of rectangles": (RECTANGLES, edge_of_first, 4),
    "numbers of rectangles": (RECTANGLES, number_of("rectangles", 0), 4),
    "places of rectangles": (
        t.BlankRectangle(17, 0, 1),
        alone("rectangles", 0, 0, 0, 2),
        4,
    ),
    "sizes, the upper end not included": (t.MedianFilter((2, 8)), under("filter_sizes"), 6),
    "operators": (t.ApplyRandomBinaryOperator([0, 1, 2]), under("operators"), 4),
    "orders of channels": (
        t.ApplyRandomBinaryOperator([0, 1, 2]),
        as_tuple("apply_to_channels"),
        6,
    ),
    "orders of one-hot channels": (ONE_HOT, as_tuple("apply_to_channels"), 2),
    "axes of slices": (t.Anisotropy((0, 2)), under("axes", slice(1)), 2),
    "numbers of ghosts": (t.Ghosting(), alone("ghosts", 0, "num_ghosts"), 7),
    "axes of ghosts": (t.Ghosting(), alone("ghosts", 0, "axis"), 3),
    "places of a crop": (t.RandomCrop((17, 18, 19)), under("center", slice(1)), 4),
}


@pytest.mark.parametrize("name", CHOICES)
def test_choices_are_as_likely_as_each_other(name: str) -> None:
    transform, read, count = CHOICES[name]
    counts = Counter(drawn(transform, read))
    assert len(counts) == count
    assert stats.chisquare(list(counts.values())).pvalue > 1e-3


def test_numbers_of_turns_are_rounded_and_a_larger_crop_is_in_the_middle() -> None:
    assert set(drawn(t.Rot90((0.6, 3.4)), number_of("axis_combinations"))) == {1, 2, 3}
    assert set(drawn(t.RandomCrop((40, 40, 40)), under("center"), 10)) == {10}


SYNCHRONIZE = "synchronize_channels"
SAME = "same_for_all_channels"
P_SAME = "p_same_for_each_channel"

#: Name -> (class, its option that makes all channels draw the same, the param that is compared).
TOGETHER: dict[str, tuple[Callable[..., t.Transform], str, str]] = {
    "bias": (t.BiasField, SYNCHRONIZE, "coefficients"),
    "ghosts": (t.Ghosting, SYNCHRONIZE, "ghosts"),
    "motion": (t.Motion, SYNCHRONIZE, "motions"),
    "spikes": (t.Spikes, SYNCHRONIZE, "spikes"),
    "windows": (partial(t.LocalContrast, (2, 9)), SAME, "kernels"),
    "local contrast": (partial(t.LocalContrast, (2, 9)), SAME, "contrasts"),
    "local gamma": (partial(t.LocalGamma, (2, 9)), SAME, "gammas"),
    "local smoothing": (partial(t.LocalSmoothing, (2, 9)), SAME, "strengths"),
    "gradients": (partial(t.BrightnessGradientAdditive, (2, 9)), SAME, "kernels"),
    "brightness": (
        partial(t.MultiplicativeBrightness, (0.5, 2)),
        "synchronize_channels",
        "multipliers",
    ),
    "gamma": (
        partial(t.Gamma, (0.5, 2), 0, p_per_channel=1, p_retain_stats=1),
        "synchronize_channels",
        "gamma",
    ),
    "noise": (partial(t.GaussianNoise, (0.1, 0.5)), SYNCHRONIZE, "sigmas"),
    "low resolution": (
        partial(t.SimulateLowResolution, (0.5, 1), synchronize_axes=True, ignore_axes=None),
        SYNCHRONIZE,
        "scales",
    ),
    "low resolution, each axis": (
        partial(t.SimulateLowResolution, (0.5, 1), synchronize_axes=False, ignore_axes=None),
        SYNCHRONIZE,
        "scales",
    ),
    "median": (partial(t.MedianFilter, (1, 15)), P_SAME, "filter_sizes"),
    "outliers": (
        partial(t.CutOffOutliers, (1, 5), (90, 99)),
        "p_synchronize_channels",
        "percentiles",
    ),
}


def channels_are_equal(key: str) -> Read:
    """Return a function that reads whether a param is the same for all channels."""

    def read(params: dict[str, Any]) -> Iterable[Any]:
        texts = {str(channel) for channel in params[key]}
        return [len(texts) == 1]

    return read


@pytest.mark.parametrize("name", TOGETHER)
def test_channels_are_drawn_together_if_asked_and_else_apart(name: str) -> None:
    make, option, key = TOGETHER[name]
    together: Any = True
    apart: Any = False
    if option == P_SAME:
        together = 1.0
        apart = 0.0
    assert all(drawn(make(**{option: together}), channels_are_equal(key), 20))
    assert not all(drawn(make(**{option: apart}), channels_are_equal(key), 20))


def test_axes_are_drawn_together_if_asked_and_else_apart() -> None:
    for together, num_numbers in ((True, 1), (False, 3)):
        blur = t.GaussianBlur((1, 5), synchronize_axes=together)
        low_resolution = t.SimulateLowResolution((0.5, 1), False, together, None)
        blurred = blur.sample(SeedTree(7).generator(), SHAPES)
        lowered = low_resolution.sample(SeedTree(7).generator(), SHAPES)
        channels_numbers = [*blurred["sigmas"], *lowered["scales"]]
        assert [len(set(numbers)) for numbers in channels_numbers] == [num_numbers] * 6
    shared = t.GaussianBlur((1, 5), synchronize_channels=True)
    assert len(shared.sample(SeedTree(7).generator(), SHAPES)["sigmas"]) == 3


def test_a_key_is_another_one_every_time() -> None:
    assert len(set(drawn(t.GaussianNoise(0.1), alone("key")))) == MANY


def generator_of_ones() -> np.random.Generator:
    """Return a Generator whose next 64 bits are all 1, so that it draws the largest number."""
    bits: Any = np.random.SFC64()
    state = bits.state
    state["state"]["state"][:] = [2**64 - 1, 0, 0, 0]
    bits.state = state
    return np.random.Generator(bits)


@pytest.mark.parametrize("count", [1, 2, 3, 10, 2**32, 2**52 + 1, 2**53])
def test_the_largest_random_number_draws_the_last_integer(count: int) -> None:
    assert draws.integer(generator_of_ones(), count) == count - 1


@pytest.mark.parametrize("count", [2**53 + 1, 2**54 + 3, 2**60 - 1, 2**62 + 2**9, 2**63])
def test_no_integer_is_drawn_beyond_the_last_one(count: int) -> None:
    assert draws.integer(generator_of_ones(), count) < count
