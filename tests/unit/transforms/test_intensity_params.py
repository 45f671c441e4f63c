"""What the intensity transforms draw: the distributions of batchgeneratorsv2's params, and the probability of every gate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from detaug.transforms.brightness import MultiplicativeBrightness
from detaug.transforms.contrast import BGContrast, Contrast

SHAPES = {"image": (3, 4, 4)}
MANY = 3000


def sampled(transform, seed=0, many=MANY):
    rng = np.random.default_rng(seed)
    return [transform.sample(rng, SHAPES) for _ in range(many)]


def come_up(count, total, probability):
    return stats.binomtest(int(count), total, probability).pvalue > 1e-4


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
