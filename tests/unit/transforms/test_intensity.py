"""Brightness, contrast, gamma, inversion and outliers, against float64 and batchgeneratorsv2."""

from __future__ import annotations

import importlib
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats

from detaug.transforms import BiasField, GaussianBlur, SimulateLowResolution
from detaug.transforms.brightness import BrightnessAdditive, MultiplicativeBrightness
from detaug.transforms.contrast import BGContrast, Contrast, InvertImage
from detaug.transforms.gamma import Gamma
from detaug.transforms.outliers import CutOffOutliers
from tests.support.transforms.errors import largest_error
from tests.support.transforms.generators import scan

SHAPES = [
    (1, 20, 24, 28),
    (3, 30, 17),
    (4, 5, 1, 31),
    (2, 1, 40),
    (2, 3, 3, 1),
]


def rng(seed=0):
    return np.random.default_rng(seed)


def standard_deviation(x):
    if x.size == 1:
        return 0.0
    return x.std(ddof=1)


# --- the formulas in float64: each changes the image x in place


def of_channels(params, *names):
    """Yield each channel that changes, with its values of the named params."""
    values = [params[name] or [] for name in names]
    return zip(params["apply_to_channel"], *values, strict=True)


def brightened(x, params):
    for c, multiplier in of_channels(params, "multipliers"):
        x[c] *= multiplier


def shifted(x, params):
    for (c,) in of_channels(params):
        x[c] += params["shift"][c]


def contrasted(x, params):
    for c, factor in of_channels(params, "multipliers"):
        mean = x[c].mean()
        x[c] = (x[c] - mean) * factor + mean


def contrasted_in_range(x, params):
    space = tuple(range(1, x.ndim))
    low = x.min(axis=space, keepdims=True)
    high = x.max(axis=space, keepdims=True)
    contrasted(x, params)
    x[...] = np.clip(x, low, high)


def bent(x, params):
    names = ("gamma", "invert_image", "retain_stats")
    for c, gamma, is_inverted, is_retained in of_channels(params, *names):
        if is_inverted:
            x[c] *= -1
        mean = x[c].mean()
        deviation = standard_deviation(x[c])
        low = x[c].min()
        span = np.ptp(x[c])
        share = (x[c] - low) / max(span, 1e-7)
        x[c] = share**gamma * span + low
        if is_retained:
            factor = deviation / max(standard_deviation(x[c]), 1e-7)
            x[c] = (x[c] - x[c].mean()) * factor + mean
        if is_inverted:
            x[c] *= -1


def inverted(x, params):
    if not params["apply"]:
        return
    for (c,) in of_channels(params):
        x[c] = 2 * x[c].mean() - x[c]


def cut(x, params):
    of_each = zip(x, params["percentiles"], params["retain_std"], strict=True)
    for channel, percentiles, is_retained in of_each:
        if percentiles is None:
            continue
        lower, upper = np.quantile(channel, np.array(percentiles) / 100)
        clipped = np.clip(channel, lower, upper)
        if is_retained and standard_deviation(clipped) > 1e-8:
            factor = standard_deviation(channel) / standard_deviation(clipped)
            mean = clipped.mean()
            clipped = (clipped - mean) * factor + mean
        channel[...] = clipped


#: detaug's class, the formula in float64, batchgeneratorsv2's module and class, and arguments.
CASES = {
    "multiplied": (
        MultiplicativeBrightness,
        brightened,
        "brightness.MultiplicativeBrightnessTransform",
        ((0.5, 2), False, 0.7),
    ),
    "shifted": (
        BrightnessAdditive,
        shifted,
        "brightness.BrightnessAdditiveTransform",
        (0.1, 0.5, False, 0.7),
    ),
    "contrast": (
        Contrast,
        contrasted_in_range,
        "contrast.ContrastTransform",
        ((0.5, 2), True, False, 0.7),
    ),
    "contrast, any range": (
        Contrast,
        contrasted,
        "contrast.ContrastTransform",
        ((0.5, 2), False, True),
    ),
    "gamma": (
        Gamma,
        bent,
        "gamma.GammaTransform",
        ((0.3, 3), 0.5, False, 0.8, 0),
    ),
    "gamma, statistics retained": (
        Gamma,
        bent,
        "gamma.GammaTransform",
        ((0.3, 3), 0.5, False, 1, 1),
    ),
    "inverted": (
        InvertImage,
        inverted,
        "inversion.InvertImageTransform",
        (1, 0.5, 0.5),
    ),
    "cut off": (
        CutOffOutliers,
        cut,
        "random_clip.CutOffOutliersTransform",
        ((0.1, 10), (90, 99.9), False, 0.8, 0.5),
    ),
}


def as_param_of_original(key, value):
    """Return a param as batchgeneratorsv2 takes it."""
    if not isinstance(value, list) or key in ("percentiles", "retain_std"):
        return value
    if key == "apply_to_channel":
        return torch.tensor(value, dtype=torch.int64)
    return torch.tensor(value)


def result_of_original(name, arguments, image, params):
    """Return the result of batchgeneratorsv2's transform for the same params."""
    pytest.importorskip("batchgeneratorsv2")
    module_name, _, class_name = name.rpartition(".")
    module = importlib.import_module(f"batchgeneratorsv2.transforms.intensity.{module_name}")
    transform = getattr(module, class_name)(*arguments)
    converted = {key: as_param_of_original(key, value) for key, value in params.items()}
    result = transform._apply_to_image(torch.from_numpy(image.copy()), **converted)
    return result.numpy()


def allowed_rounding(image, exact):
    """Return four times the rounding error of the largest number in the computation."""
    largest = max(np.abs(image).max(), np.abs(exact).max(), np.ptp(image))
    return 4 * 2.0**-24 * largest


@pytest.mark.parametrize("case", CASES)
def test_result_is_that_of_float64_within_rounding_next_to_batchgeneratorsv2s_and_no_less_accurate(
    case,
):
    cls, formula, name, arguments = CASES[case]
    transform = cls(*arguments)
    for seed in range(25):
        image = scan(SHAPES[seed % len(SHAPES)], seed)
        params = transform.sample(rng(seed), {"image": image.shape})
        exact = image.astype(np.float64)
        formula(exact, params)
        actual = transform.apply({"image": image}, params)["image"]
        other = result_of_original(name, arguments, image, params)
        assert actual.dtype == np.float32
        allowed = allowed_rounding(image, exact)
        error = largest_error(actual, exact)
        assert error <= 2 * allowed
        assert error <= largest_error(other, exact) + allowed
        assert largest_error(actual, other) <= 5e-4 * max(image.std(), exact.std())


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_channel_without_a_finite_mean_becomes_nan_and_its_neighbour_does_not_notice(bad):
    image = scan((2, 5, 6, 7), 3)
    spoilt = image.copy()
    spoilt[0, 1, 2, 3] = bad
    for transform in (
        Contrast(1.3, True, False),
        Contrast(1.3, False, False),
        Gamma(0.7, 0, False, 1, 0),
        Gamma(0.7, 1, False, 1, 1),
        InvertImage(1),
    ):
        clean = transform(image=image, rng=rng())["image"]
        with_nan, neighbour = transform(image=spoilt, rng=rng())["image"]
        assert with_nan.tobytes() == np.full_like(with_nan, np.nan).tobytes(), transform
        assert neighbour.tobytes() == clean[1].tobytes()


@pytest.mark.parametrize(
    "transform", [MultiplicativeBrightness(2.0, False), BrightnessAdditive(1, 1)]
)
def test_brightness_leaves_nan_and_infinity_where_they_are(transform):
    image = np.array([[[1, np.nan, np.inf, -np.inf]]], np.float32)
    result = transform(image=image, rng=rng())["image"]
    np.testing.assert_array_equal(result, [[[2, np.nan, np.inf, -np.inf]]])


def cut_channel(image, lower, upper, retain):
    params = {"percentiles": [(lower, upper)], "retain_std": [retain]}
    return CutOffOutliers().apply({"image": image}, params)["image"]


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("infinities", [[np.inf], [-np.inf], [np.inf, -np.inf, np.inf]])
def test_infinities_are_clamped_as_other_outliers_are(infinities, retain):
    image = scan((1, 10, 100), 0)
    image[0, 0, : len(infinities)] = infinities
    largest = np.where(np.isinf(image), np.sign(image) * np.float32(1e30), image)
    cut = cut_channel(image, 1, 99, retain)
    assert np.isfinite(cut).all()
    if not retain:
        assert cut.tobytes() == cut_channel(largest, 1, 99, retain).tobytes()
        return
    deviation = image[np.isfinite(image)].std(ddof=1)
    assert abs(cut.std(ddof=1) - deviation) < 1e-4 * deviation


@pytest.mark.parametrize(
    ("values", "lower", "upper", "expected"),
    [
        ([0, 1, 2, np.inf], 0, 100 / 3 * 2, [0, 1, 2, 2]),
        ([0, 1, 2, np.inf], 0, 90, [0, 1, 2, np.inf]),
        ([-np.inf, 1, 2, 3], 20, 100, [-np.inf, 1, 2, 3]),
        ([-np.inf, 1, 2, 3], 100 / 3, 100, [1, 1, 2, 3]),
        ([-np.inf, np.inf], 10, 90, [-np.inf, np.inf]),
        ([-np.inf, np.inf, np.inf], 10, 20, [-np.inf, -np.inf, -np.inf]),
        ([np.inf, np.inf, np.inf], 10, 90, [np.inf, np.inf, np.inf]),
    ],
)
@pytest.mark.parametrize("retain", [False, True])
def test_a_percentile_beside_an_infinity_makes_no_nan(values, lower, upper, expected, retain):
    image = np.array([[values]], np.float32)
    cut = cut_channel(image, lower, upper, retain)
    if retain and np.isfinite(expected).all():
        assert np.isfinite(cut).all()
    else:
        np.testing.assert_array_equal(cut, [[expected]])


def test_a_channel_with_a_nan_is_not_clamped_but_becomes_nan():
    image = scan((2, 10, 100), 0)
    image[0, 3, 4] = np.nan
    cut = CutOffOutliers(1, 99)(image=image, rng=rng())["image"]
    assert np.isnan(cut[0]).all()
    assert np.isfinite(cut[1]).all()


@pytest.mark.parametrize("outlier", [10, 1e4, 1e6])
@pytest.mark.parametrize("invert", [False, True])
def test_gamma_retains_the_statistics_of_a_channel_with_an_outlier(outlier, invert):
    image = scan((1, 20, 30, 40), 5)
    image[0, 3, 4, 5] = outlier * np.abs(image).max()
    params = {
        "apply_to_channel": [0],
        "gamma": [0.7],
        "invert_image": [invert],
        "retain_stats": [True],
    }
    exact = image.astype(np.float64)
    bent(exact, params)
    result = Gamma(0.7, 0, False, 1, 1).apply({"image": image}, params)["image"]
    other = result_of_original(*CASES["gamma"][2:], image, params)
    allowed = largest_error(other, exact) + allowed_rounding(image, exact)
    assert largest_error(result, exact) <= allowed
    np.testing.assert_allclose(result.std(dtype=float), image.std(dtype=float), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 3.7, -1e6])
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("multiplied", "shifted")])
def test_a_constant_channel_stays_as_it_is(case, value):
    cls, _, _, arguments = CASES[case]
    image = np.full((1, 5, 6, 7), value, np.float32)
    result = cls(*arguments)(image=image, rng=rng(1))["image"]
    np.testing.assert_allclose(result, image, rtol=1e-7)


@pytest.mark.parametrize("contrast_range", [(0.5, 2), (0.9, 1.1), (1.2, 2), (1, 1)])
def test_bg_contrast_draws_as_the_original(contrast_range):
    module = pytest.importorskip("batchgeneratorsv2.transforms.intensity.contrast")
    original = module.BGContrast(contrast_range)
    contrast = BGContrast(contrast_range)
    generator = rng()
    np.random.seed(0)
    factors = [contrast(generator) for _ in range(3000)]
    factors_of_original = [original() for _ in range(3000)]
    assert stats.ks_2samp(factors, factors_of_original).pvalue > 1e-3
    if contrast_range[0] < 1:
        num_below = sum(factor < 1 for factor in factors)
        assert stats.binomtest(num_below, 3000, 0.5).pvalue > 1e-4


def from_half_to_one_and_a_half(rng):
    return 0.5 + rng.random()


@pytest.mark.parametrize(
    "factor",
    [
        BGContrast((0.5, 2)),
        BGContrast((0.5, 2)).sample_contrast,
        BGContrast(from_half_to_one_and_a_half),
    ],
)
def test_bg_contrast_serves_as_object_as_method_and_with_a_callable(factor):
    params = Contrast(factor, True, False).sample(rng(), {"image": (3, 4, 4)})
    assert 0.5 <= params["multipliers"][0] <= 2


def one_and_a_quarter():
    return 1.25


def test_bg_contrast_needs_no_generator_for_a_callable_that_takes_none():
    assert BGContrast(one_and_a_quarter)(rng()) == 1.25


#: Shape of an image: two channels, two axes.
SHAPE = (2, 4, 5)


class Callables:
    """Callables with different parameters that record their arguments."""

    def __init__(self):
        self.arguments = []

    def of_channel(self, channel):
        self.arguments.append((channel,))
        return 0.5

    def of_axis(self, shape, dim):
        self.arguments.append((tuple(shape), dim))
        return 0.5

    def of_both(self, image, channel, dim):
        self.arguments.append((image.shape, channel, dim))
        return 0.5


def test_callables_are_told_what_they_ask_for():
    callables = Callables()
    for transform in (
        MultiplicativeBrightness(callables.of_channel, False),
        BiasField(callables.of_channel, 0, synchronize_channels=False),
        GaussianBlur(callables.of_axis),
        SimulateLowResolution(callables.of_both, False, False, None),
    ):
        transform(image=np.zeros(SHAPE, np.float32), rng=rng())
    of_channels = [(0,), (1,)] * 2
    of_axes = list(product([SHAPE], [1, 2])) * 2
    of_both = list(product([SHAPE], [0, 1], [0, 1]))
    assert callables.arguments == of_channels + of_axes + of_both
