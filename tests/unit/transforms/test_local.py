"""Local transforms, against their formulas in float64 and against batchgeneratorsv2."""

from functools import partial

import numpy as np
import pytest
import torch
from scipy import ndimage
from scipy.stats import norm

from detaug.transforms.local import (
    BrightnessGradientAdditive,
    LocalContrast,
    LocalGamma,
    LocalSmoothing,
    LocalWindow,
)
from tests.support.transforms.errors import largest_error, root_mean_square_error
from tests.support.transforms.generators import generator, noise

SHAPES = ((1, 20, 23, 31), (3, 17, 8, 33), (2, 31, 29), (2, 7, 1, 12))
OPTIONS = {
    BrightnessGradientAdditive: {"max_strength": (-5, 5)},
    LocalContrast: {"new_contrast": (0.2, 3)},
    LocalGamma: {"gamma": (0.1, 4)},
    LocalSmoothing: {"kernel_size": (0.3, 3)},
}


def transform_of(cls, **options):
    """Return a transform with wide ranges whose channels draw their own params."""
    defaults = {**OPTIONS[cls], "same_for_all_channels": False}
    return cls((3.0, 30.0), loc=(-0.2, 1.2), **{**defaults, **options})


# --- the formulas of batchgeneratorsv2 in float64


def shares(length, loc, scale):
    """Return the normal distribution's probability of each voxel along an axis.

    It is computed from the smaller tail, where a difference of probabilities is more precise.
    """
    center = loc * length
    faces = np.arange(length + 1) - 0.5
    below = np.diff(norm.cdf(faces, center, scale))
    above = -np.diff(norm.sf(faces, center, scale))
    return np.where(np.arange(length) > center, above, below)


def window(shape, kernel):
    """Return the window (*shape) of a kernel: a product of all axes, scaled to 0 ... 1."""
    product = np.ones(shape)
    axes = zip(shape, kernel["loc"], kernel["scale"], strict=True)
    for axis, (length, loc, scale) in enumerate(axes):
        along_axis = [1] * len(shape)
        along_axis[axis] = length
        product = product * shares(length, loc, scale).reshape(along_axis)
    product = product - product.min()
    return product / product.max()


def gradient_added(transform, x, window, strength):
    if transform.mean_centered:
        window = window - window.mean()
    return x + window / np.abs(window).max() * strength


def contrast_changed(x, window, contrast):
    mean = (x * window).sum() / (window.sum() + 1e-8)
    return x + window * (contrast - 1) * (x - mean)


def gamma_changed(x, window, gamma):
    extent = np.ptp(x)
    relative = (x - x.min()) / extent
    return x + window * extent * (relative**gamma - relative)


def smoothed(x, window, strength, sigma):
    blurred = ndimage.gaussian_filter(x, sigma)
    return x + window * strength * (blurred - x)


def exactly(transform, image, params):
    """Return a transform's result in float64."""
    channels = []
    for c, kernel in enumerate(params["kernels"]):
        x = image[c].astype(np.float64)
        own_window = window(x.shape, kernel)
        if isinstance(transform, BrightnessGradientAdditive):
            changed = gradient_added(transform, x, own_window, kernel["strength"])
        elif isinstance(transform, LocalContrast):
            changed = contrast_changed(x, own_window, params["contrasts"][c])
        elif isinstance(transform, LocalGamma):
            changed = gamma_changed(x, own_window, params["gammas"][c])
        else:
            changed = smoothed(x, own_window, params["strengths"][c], params["sigma"])
        channels.append(changed)
    return np.stack(channels)


# --- batchgeneratorsv2

#: detaug's class -> batchgeneratorsv2's module and class.
ORIGINALS = {
    BrightnessGradientAdditive: ("brightness_gradient", "BrightnessGradientAdditiveTransform"),
    LocalContrast: ("local_contrast", "LocalContrastTransform"),
    LocalGamma: ("local_gamma", "LocalGammaTransform"),
    LocalSmoothing: ("local_smoothing", "LocalSmoothingTransform"),
}


def original_of(cls):
    module_name, class_name = ORIGINALS[cls]
    module = pytest.importorskip(f"batchgeneratorsv2.transforms.local.{module_name}")
    return getattr(module, class_name)(1.0)


def at_axis(values, shape, dim):
    return values[dim]


def window_of_original(original, shape, kernel):
    """Return the window that the original computes for a kernel."""
    original.loc = partial(at_axis, kernel["loc"])
    original.scale = partial(at_axis, kernel["scale"])
    return original._generate_kernel(shape)


def as_batchgeneratorsv2(transform, image, params):
    """Return the result of the original for the same params."""
    original = original_of(type(transform))
    windows = []
    for kernel in params["kernels"]:
        own_window = window_of_original(original, image.shape[1:], kernel)
        if isinstance(transform, BrightnessGradientAdditive):
            if transform.mean_centered:
                own_window = own_window - own_window.mean()
            own_window = own_window / np.abs(own_window).max() * np.float32(kernel["strength"])
        windows.append(own_window)
    with_windows = {**params, "kernels": windows}
    return original._apply_to_image(torch.from_numpy(image.copy()), **with_windows).numpy()


def three_results(transform, image, seed):
    """Return the results of detaug, of batchgeneratorsv2, and in float64, for the same params."""
    params = transform.sample(generator(seed), {"image": image.shape})
    result = transform.apply({"image": image}, params)["image"]
    other = as_batchgeneratorsv2(transform, image, params)
    return result, other, exactly(transform, image, params)


@pytest.mark.parametrize("cls", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_formula_in_float64_and_errs_no_more_than_batchgeneratorsv2(cls, shape):
    for seed in range(5):
        result, other, exact = three_results(transform_of(cls), noise(shape, seed), seed)
        assert largest_error(result, exact) < 1e-6 * max(1.0, np.abs(exact).max())
        assert largest_error(result, other) < 1e-4
        # SciPy's blur sums in float64, detaug's in float32, which may cost half an ulp of the
        # image's values.
        allowed = max(1.05 * root_mean_square_error(other, exact), 6e-8)
        assert root_mean_square_error(result, exact) <= allowed


@pytest.mark.parametrize("offset", [1e2, 1e4, -1e4])
@pytest.mark.parametrize("shape", SHAPES)
def test_smoothing_errs_no_more_than_batchgeneratorsv2_at_a_large_offset(offset, shape):
    for seed in range(5):
        image = noise(shape, seed) + np.float32(offset)
        result, other, exact = three_results(transform_of(LocalSmoothing), image, seed)
        assert largest_error(result, exact) <= largest_error(other, exact)
        assert root_mean_square_error(result, exact) <= root_mean_square_error(other, exact)


def test_a_gradient_can_stay_uncentred_and_be_clipped():
    image = noise((2, 9, 14, 11))
    plain = transform_of(BrightnessGradientAdditive, mean_centered=False, max_strength=3)
    params = plain.sample(generator(), {"image": image.shape})
    result = plain.apply({"image": image}, params)["image"]
    np.testing.assert_allclose(result, exactly(plain, image, params), atol=2e-6)
    assert (result - image).max() == pytest.approx(3.0, abs=1e-5)
    clipped = transform_of(BrightnessGradientAdditive, mean_centered=False, clip_intensities=True)
    limited = clipped.apply({"image": image}, params)["image"]
    np.testing.assert_array_equal(limited, np.clip(result, image.min(), image.max()))


def half_by_name(dim, shape):
    return shape[dim] / 2


def half_by_position(x, y):
    return x[y] / 2


def half_by_any_position(x, *others):
    return x[others[0]] / 2


@pytest.mark.parametrize("scale", [half_by_name, half_by_position, half_by_any_position])
def test_callables_get_shape_and_dim_by_name_or_by_position(scale):
    params = LocalGamma(scale).sample(generator(), {"image": (1, 4, 6, 8)})
    assert params["kernels"][0]["scale"] == [2.0, 3.0, 4.0]


def of_kernel(kernel):
    return 3.0


def of_shape(shape):
    return 1.0


@pytest.mark.parametrize(
    "transform",
    [
        LocalGamma(of_kernel),
        BrightnessGradientAdditive(3.0, max_strength=of_shape),
    ],
)
def test_what_another_transform_offers_is_not_given_in_place_of_something_else(transform):
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        transform(image=noise((1, 5, 6, 7)), rng=generator())


def test_strengths_may_ask_for_image_and_kernel():
    calls = []

    def strength(_image, _kernel):
        calls.append((_image, _kernel))
        return 1.0

    transform = BrightnessGradientAdditive(3.0, max_strength=strength)
    transform(image=noise((1, 5, 6, 7)), rng=generator())
    image, kernel = calls[0]
    assert image.shape == (1, 5, 6, 7)
    assert kernel.shape == (5, 6, 7)
    assert kernel.dtype == np.float32
    assert abs(float(kernel.mean())) < 1e-6


def likeliest_share(shape, kernel):
    """Return the largest probability of a voxel, in float64."""
    product = 1.0
    for length, loc, scale in zip(shape, kernel["loc"], kernel["scale"], strict=True):
        faces = np.arange(length + 1) - 0.5
        product *= np.diff(norm.cdf(faces, loc * length, scale)).max()
    return product


def test_windows_saturate_to_nothing_where_batchgeneratorsv2s_do():
    local = pytest.importorskip("batchgeneratorsv2.transforms.local.local_transform")
    rng = generator(11)
    shape = (48, 60, 56)
    num_empty = 0
    for _ in range(200):
        kernel = {"loc": rng.uniform(-1, 2, 3), "scale": rng.uniform(1, 8, 3)}
        expected = window_of_original(local.LocalTransform(1.0), shape, kernel)
        actual = LocalWindow(shape, kernel["loc"], kernel["scale"]).values(mean_centered=False)
        assert actual.any() == expected.any()
        if not actual.any():
            num_empty += 1
        # For smaller shares the original computes with float32's inexact numbers below 1e-38.
        if likeliest_share(shape, kernel) > 1e-30:
            np.testing.assert_allclose(actual, expected, atol=2e-3)
    assert 20 < num_empty < 180


def test_nan_stays_where_it_is():
    image = noise((1, 5, 6, 7))
    image[0, 2, 3, 4] = np.nan
    for cls in (BrightnessGradientAdditive, LocalGamma):
        result = transform_of(cls)(image=image, rng=generator())["image"]
        np.testing.assert_array_equal(np.isnan(result), np.isnan(image))
