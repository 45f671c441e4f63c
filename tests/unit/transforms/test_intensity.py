"""Brightness, contrast, gamma, inversion, outliers: judged against float64 and against
batchgeneratorsv2.
"""

from __future__ import annotations

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
from tests.support.transforms.generators import scan

SHAPES = [(1, 20, 24, 28), (3, 30, 17), (4, 5, 1, 31), (2, 1, 40), (2, 3, 3, 1)]


def standard_deviation(x):
    return x.std(ddof=1) if x.size > 1 else 0.0


def brightened(x, params):
    for c, multiplier in zip(params["apply_to_channel"], params["multipliers"], strict=True):
        x[c] *= multiplier


def shifted(x, params):
    for c in params["apply_to_channel"]:
        x[c] += params["shift"][c]


def contrasted(x, params, preserve_range):
    for c, factor in zip(params["apply_to_channel"], params["multipliers"] or [], strict=True):
        low, high, mean = x[c].min(), x[c].max(), x[c].mean()
        x[c] = (x[c] - mean) * factor + mean
        if preserve_range:
            x[c] = np.clip(x[c], low, high)


def bent(x, params):
    every = (
        params[key] or [] for key in ("apply_to_channel", "gamma", "invert_image", "retain_stats")
    )
    for c, gamma, invert, retain in zip(*every, strict=True):
        sign = -1 if invert else 1
        y = sign * x[c]
        mean, deviation, low, span = y.mean(), standard_deviation(y), y.min(), y.max() - y.min()
        y = ((y - low) / max(span, 1e-7)) ** gamma * span + low
        if retain:
            y = (y - y.mean()) * (deviation / max(standard_deviation(y), 1e-7)) + mean
        x[c] = sign * y


def inverted(x, params):
    for c in params["apply_to_channel"] if params["apply"] else []:
        x[c] = 2 * x[c].mean() - x[c]


def cut(x, params):
    for c, (percentiles, retain) in enumerate(
        zip(params["percentiles"], params["retain_std"], strict=True)
    ):
        if percentiles is not None:
            y = np.clip(x[c], *np.quantile(x[c], np.array(percentiles) / 100))
            if retain and standard_deviation(y) > 1e-8:
                y = (y - y.mean()) / standard_deviation(y) * standard_deviation(x[c]) + y.mean()
            x[c] = y


# ours, the formula in float64, batchgeneratorsv2's module and class, arguments by position
CASES = {
    "multiplied": (MultiplicativeBrightness, brightened, "brightness.MultiplicativeBrightnessTransform", ((0.5, 2), False, 0.7)),
    "shifted": (BrightnessAdditive, shifted, "brightness.BrightnessAdditiveTransform", (0.1, 0.5, False, 0.7)),
    "contrast": (
        Contrast, lambda x, params: contrasted(x, params, True), "contrast.ContrastTransform", ((0.5, 2), True, False, 0.7),
    ),
    "contrast, any range": (
        Contrast, lambda x, params: contrasted(x, params, False), "contrast.ContrastTransform", ((0.5, 2), False, True),
    ),
    "gamma": (Gamma, bent, "gamma.GammaTransform", ((0.3, 3), 0.5, False, 0.8, 0)),
    "gamma, statistics retained": (Gamma, bent, "gamma.GammaTransform", ((0.3, 3), 0.5, False, 1, 1)),
    "inverted": (InvertImage, inverted, "inversion.InvertImageTransform", (1, 0.5, 0.5)),
    "cut off": (CutOffOutliers, cut, "random_clip.CutOffOutliersTransform", ((0.1, 10), (90, 99.9), False, 0.8, 0.5)),
}  # fmt: skip


def theirs(name, arguments, image, params):
    pytest.importorskip("batchgeneratorsv2")
    import importlib

    module, _, cls = name.rpartition(".")
    transform = getattr(
        importlib.import_module(f"batchgeneratorsv2.transforms.intensity.{module}"), cls
    )(*arguments)
    as_tensors = {
        key: torch.tensor(value, dtype=torch.int64 if key == "apply_to_channel" else None)
        if isinstance(value, list) and key not in ("percentiles", "retain_std")
        else value
        for key, value in params.items()
    }
    return transform._apply_to_image(torch.from_numpy(image.copy()), **as_tensors).numpy()


def allowed_rounding(image, exact):
    """A few roundings of the largest number that has a part in the result."""
    return 4 * 2.0**-24 * max(np.abs(image).max(), np.abs(exact).max(), np.ptp(image))


@pytest.mark.parametrize("case", CASES)
def test_result_is_that_of_float64_within_rounding_next_to_batchgeneratorsv2s_and_no_less_accurate(
    case,
):
    cls, formula, name, arguments = CASES[case]
    transform = cls(*arguments)
    for seed in range(25):
        image = scan(SHAPES[seed % len(SHAPES)], seed)
        params = transform.sample(np.random.default_rng(seed), {"image": image.shape})
        exact = image.astype(np.float64)
        formula(exact, params)
        found = transform.apply({"image": image}, params)["image"]
        other = theirs(name, arguments, image, params)
        assert found.dtype == np.float32
        error, allowed = np.abs(found - exact).max(), allowed_rounding(image, exact)
        assert error <= 2 * allowed
        assert error <= np.abs(other - exact).max() + allowed
        assert np.abs(found - other).max() <= 5e-4 * max(image.std(), exact.std())


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
        clean = transform(image=image, rng=np.random.default_rng(0))["image"]
        found = transform(image=spoilt, rng=np.random.default_rng(0))["image"]
        assert np.isnan(found[0]).all(), transform
        assert found[0].tobytes() == np.full_like(found[0], np.nan).tobytes()
        assert found[1].tobytes() == clean[1].tobytes()


def test_brightness_leaves_nan_and_infinity_where_they_are():
    image = np.array([[[1, np.nan, np.inf, -np.inf]]], np.float32)
    for transform in (MultiplicativeBrightness(2.0, False), BrightnessAdditive(1, 1)):
        np.testing.assert_array_equal(
            transform(image=image, rng=np.random.default_rng(0))["image"],
            [[[2, np.nan, np.inf, -np.inf]]],
        )


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
    cut = CutOffOutliers(1, 99)(image=image, rng=np.random.default_rng(0))["image"]
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
    found = Gamma(0.7, 0, False, 1, 1).apply({"image": image}, params)["image"]
    other = theirs(*CASES["gamma"][2:], image, params)
    assert np.abs(found - exact).max() <= np.abs(other - exact).max() + allowed_rounding(
        image, exact
    )
    np.testing.assert_allclose(found.std(dtype=float), image.std(dtype=float), rtol=1e-6)


@pytest.mark.parametrize("value", [0.0, 3.7, -1e6])
def test_a_constant_channel_stays_as_it_is(value):
    image = np.full((1, 5, 6, 7), value, np.float32)
    for cls, _, _, arguments in list(CASES.values())[2:]:
        found = cls(*arguments)(image=image, rng=np.random.default_rng(1))["image"]
        np.testing.assert_allclose(found, image, rtol=1e-7)


@pytest.mark.parametrize("contrast_range", [(0.5, 2), (0.9, 1.1), (1.2, 2), (1, 1)])
def test_bg_contrast_draws_as_the_original(contrast_range):
    theirs = pytest.importorskip("batchgeneratorsv2.transforms.intensity.contrast").BGContrast(
        contrast_range
    )
    ours = BGContrast(contrast_range)
    rng = np.random.default_rng(0)
    np.random.seed(0)
    found = [ours(rng) for _ in range(3000)]
    assert stats.ks_2samp(found, [theirs() for _ in range(3000)]).pvalue > 1e-3
    if contrast_range[0] < 1:
        assert stats.binomtest(sum(factor < 1 for factor in found), 3000, 0.5).pvalue > 1e-4


def test_bg_contrast_serves_as_object_as_method_and_with_a_callable():
    rng = np.random.default_rng(0)
    for factor in (
        BGContrast((0.5, 2)),
        BGContrast((0.5, 2)).sample_contrast,
        BGContrast(lambda rng: 0.5 + rng.random()),
    ):
        (first, *_) = Contrast(factor, True, False).sample(rng, {"image": (3, 4, 4)})["multipliers"]
        assert 0.5 <= first <= 2
    assert BGContrast(lambda: 1.25)(rng) == 1.25


def test_callables_are_told_what_they_ask_for():
    told, space = [], (2, 4, 5)

    def note(*values):
        told.append(values)
        return 0.5

    for transform in (
        MultiplicativeBrightness(lambda channel: note(channel), False),
        BiasField(lambda channel: note(channel), 0, synchronize_channels=False),
        GaussianBlur(lambda shape, dim: note(tuple(shape), dim)),
        SimulateLowResolution(
            lambda image, channel, dim: note(image.shape, channel, dim), False, False, None
        ),
    ):
        transform(image=np.zeros(space, np.float32), rng=np.random.default_rng(0))
    of_axes = [*product([space], [1, 2])] * 2 + [*product([space], [0, 1], [0, 1])]
    assert told == [(0,), (1,), (0,), (1,), *of_axes]
