"""What the intensity transforms draw: the distributions of batchgeneratorsv2's params, and the probability of every gate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from detaug.transforms.brightness import BrightnessAdditive, MultiplicativeBrightness
from detaug.transforms.contrast import BGContrast, Contrast, InvertImage
from detaug.transforms.gamma import Gamma
from detaug.transforms.outliers import CutOffOutliers

SHAPES = {"image": (3, 4, 4)}
MANY = 3000


def sampled(transform, seed=0, many=MANY):
    rng = np.random.default_rng(seed)
    return [transform.sample(rng, SHAPES) for _ in range(many)]


def come_up(count, total, probability):
    return stats.binomtest(int(count), total, probability).pvalue > 1e-4


@pytest.mark.parametrize(
    "make",
    [
        lambda p: MultiplicativeBrightness((0.5, 2), False, p),
        lambda p: BrightnessAdditive(0, 1, False, p),
        lambda p: Contrast((0.5, 2), True, False, p),
        lambda p: Gamma((0.5, 2), 0, False, p, 1),
        lambda p: InvertImage(1, 0, p),
    ],
)
def test_each_channel_is_drawn_by_itself(make):
    drawn = sampled(make(0.3))
    for c in range(3):
        assert come_up(sum(c in params["apply_to_channel"] for params in drawn), MANY, 0.3)
    assert come_up(sum({0, 1} <= set(params["apply_to_channel"]) for params in drawn), MANY, 0.09)


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda together: MultiplicativeBrightness((0.5, 2), together), "multipliers"),
        (lambda together: Contrast((0.5, 2), True, together), "multipliers"),
        (lambda together: Gamma((0.5, 2), 0, together, 1, 1), "gamma"),
    ],
)
def test_numbers_are_even_over_their_range_and_one_for_all_if_synchronized(make, key):
    apart = np.array([params[key] for params in sampled(make(False))])
    together = np.array([params[key] for params in sampled(make(True), seed=1)])
    for values in (apart.ravel(), together[:, 0]):
        assert stats.kstest(values, stats.uniform(0.5, 1.5).cdf).pvalue > 1e-3
    assert (together == together[:, :1]).all()
    assert abs(np.corrcoef(apart[:, 0], apart[:, 1])[0, 1]) < 0.1


def test_added_brightness_is_normal_apart_and_even_from_mu_to_sigma_together():
    apart = np.array([params["shift"] for params in sampled(BrightnessAdditive(0.2, 0.5, False))])
    assert stats.kstest(apart.ravel(), stats.norm(0.2, 0.5).cdf).pvalue > 1e-3
    together = np.array([params["shift"] for params in sampled(BrightnessAdditive(0.2, 0.5, True))])
    assert stats.kstest(together[:, 0], stats.uniform(0.2, 0.3).cdf).pvalue > 1e-3
    assert (together == together[:, :1]).all()


@pytest.mark.parametrize("contrast_range", [(0.5, 2), (0.9, 1.1), (1.2, 2), (1, 1)])
def test_bg_contrast_draws_as_the_original(contrast_range):
    theirs = pytest.importorskip("batchgeneratorsv2.transforms.intensity.contrast").BGContrast(contrast_range)
    ours = BGContrast(contrast_range)
    rng = np.random.default_rng(0)
    np.random.seed(0)
    found = [ours(rng) for _ in range(MANY)]
    assert stats.ks_2samp(found, [theirs() for _ in range(MANY)]).pvalue > 1e-3
    if contrast_range[0] < 1:
        assert come_up(sum(factor < 1 for factor in found), MANY, 0.5)


def test_bg_contrast_serves_as_object_as_method_and_with_a_callable():
    rng = np.random.default_rng(0)
    for factor in (
        BGContrast((0.5, 2)),
        BGContrast((0.5, 2)).sample_contrast,
        BGContrast(lambda rng: 0.5 + rng.random()),
    ):
        (first, *_) = Contrast(factor, True, False).sample(rng, SHAPES)["multipliers"]
        assert 0.5 <= first <= 2
    assert BGContrast(lambda: 1.25)(rng) == 1.25


def test_callables_are_told_the_channel():
    transform = MultiplicativeBrightness(lambda channel: 10 + channel, False)
    assert transform.sample(np.random.default_rng(0), SHAPES)["multipliers"] == [10, 11, 12]


def test_callables_may_look_at_the_image():
    transform = MultiplicativeBrightness(lambda image, channel: float(image[channel].max()), False)
    image = np.array([[[2.0]], [[3.0]]], np.float32)
    assert transform(image=image, rng=np.random.default_rng(0))["image"].ravel().tolist() == [4, 9]


def test_gamma_gates():
    drawn = sampled(Gamma((0.5, 2), 0.2, False, 1, 0.7))
    assert come_up(sum(params["invert_image"][1] for params in drawn), MANY, 0.2)
    assert come_up(sum(params["retain_stats"][2] for params in drawn), MANY, 0.7)
    assert come_up(sum(p["retain_stats"][2] and p["invert_image"][2] for p in drawn), MANY, 0.14)


def test_inversion_gates():
    drawn = sampled(InvertImage(0.4, 0.3, 0.5))
    assert come_up(sum(params["apply"] for params in drawn), MANY, 0.4)
    assert come_up(sum(len(params["apply_to_channel"]) == 3 for params in drawn), MANY, 0.4 * (0.3 + 0.7 / 8))


def test_outlier_gates_and_percentiles():
    drawn = sampled(CutOffOutliers((1, 5), (90, 99), False, 0.6, 0.25))
    first = [params["percentiles"][0] for params in drawn if params["percentiles"][0]]
    assert come_up(len(first), MANY, 0.6)
    assert come_up(sum(params["retain_std"][0] for params in drawn), MANY, 0.15)
    assert stats.kstest([lower for lower, _ in first], stats.uniform(1, 4).cdf).pvalue > 1e-3
    assert stats.kstest([upper for _, upper in first], stats.uniform(90, 9).cdf).pvalue > 1e-3
    together = sampled(CutOffOutliers((1, 5), (90, 99), True))
    assert all(len(set(params["percentiles"])) == 1 for params in together)


@pytest.mark.parametrize(
    ("make", "error", "says"),
    [
        (lambda: MultiplicativeBrightness((2, 1), False), ValueError, "low <= high"),
        (lambda: MultiplicativeBrightness(np.nan, False), ValueError, "finite"),
        (lambda: MultiplicativeBrightness((1, 2), False, 1.5), ValueError, "probability"),
        (lambda: BrightnessAdditive(1, 0.5), ValueError, "evenly between mu and sigma"),
        (lambda: BrightnessAdditive(0, -1, False), ValueError, "sigma"),
        (lambda: BrightnessAdditive("0", 1), TypeError, "number"),
        (lambda: Contrast("2", True, False), TypeError, "contrast_range"),
        (lambda: BGContrast((0.2, 0.9)), ValueError, "reach up to 1"),
        (lambda: BGContrast(1.0), TypeError, "callable"),
        (lambda: Gamma((0, 1), 0, False, 1, 1), ValueError, "greater than 0"),
        (lambda: Gamma(1, 2, False, 1, 1), ValueError, "p_invert_image"),
        (lambda: InvertImage(-0.1), ValueError, "probability"),
        (lambda: CutOffOutliers(-1), ValueError, "percentile_lower"),
        (lambda: CutOffOutliers(1, 101), ValueError, "percentile_upper"),
    ],
)
def test_bad_arguments_are_refused(make, error, says):
    with pytest.raises(error, match=says):
        make()
