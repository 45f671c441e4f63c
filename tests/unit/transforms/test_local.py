"""Local transforms: their window, their formulas in float64, and agreement with batchgeneratorsv2."""

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
    apart = {"same_for_all_channels": False}
    return cls((3.0, 30.0), loc=(-0.2, 1.2), **{**OPTIONS[cls], **apart, **options})


# --- the formulas of batchgeneratorsv2 in float64


def shares(length, loc, scale):
    """Return the probability of each voxel, from the smaller tail of SciPy's normal distribution."""
    center = loc * length
    faces = np.arange(length + 1) - 0.5
    below = np.diff(norm.cdf(faces, center, scale))
    above = -np.diff(norm.sf(faces, center, scale))
    return np.where(np.arange(length) > center, above, below)


def window(shape, kernel):
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

#: Of detaug's class: the module and the class that it stands for.
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
    """Return the window that the original makes itself of a kernel."""
    original.loc = partial(at_axis, kernel["loc"])
    original.scale = partial(at_axis, kernel["scale"])
    return original._generate_kernel(shape)


def as_batchgeneratorsv2(transform, image, params):
    original = original_of(type(transform))
    windows = []
    for kernel in params["kernels"]:
        own_window = window_of_original(original, image.shape[1:], kernel)
        if isinstance(transform, BrightnessGradientAdditive):
            if transform.mean_centered:
                own_window = own_window - own_window.mean()
            own_window = own_window / np.abs(own_window).max() * np.float32(kernel["strength"])
        windows.append(own_window)
    theirs = {**params, "kernels": windows}
    return original._apply_to_image(torch.from_numpy(image.copy()), **theirs).numpy()


def three_ways(transform, image, seed):
    """Return what ours and the original make of the same params, and the formula in float64."""
    params = transform.sample(generator(seed), {"image": image.shape})
    ours = transform.apply({"image": image}, params)["image"]
    theirs = as_batchgeneratorsv2(transform, image, params)
    return ours, theirs, exactly(transform, image, params)


@pytest.mark.parametrize("cls", OPTIONS)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_formula_in_float64_and_errs_no_more_than_batchgeneratorsv2(cls, shape):
    for seed in range(5):
        ours, theirs, exact = three_ways(transform_of(cls), noise(shape, seed), seed)
        assert largest_error(ours, exact) < 1e-6 * max(1.0, np.abs(exact).max())
        assert largest_error(ours, theirs) < 1e-4
        # SciPy's blur sums in float64; half an ulp of the image's values is granted to sums in
        # float32.
        allowed = max(1.05 * root_mean_square_error(theirs, exact), 6e-8)
        assert root_mean_square_error(ours, exact) <= allowed


@pytest.mark.parametrize("offset", [1e2, 1e4, -1e4])
@pytest.mark.parametrize("shape", SHAPES)
def test_smoothing_errs_no_more_than_batchgeneratorsv2_at_a_large_offset(offset, shape):
    for seed in range(5):
        image = noise(shape, seed) + np.float32(offset)
        ours, theirs, exact = three_ways(transform_of(LocalSmoothing), image, seed)
        assert largest_error(ours, exact) <= largest_error(theirs, exact)
        assert root_mean_square_error(ours, exact) <= root_mean_square_error(theirs, exact)


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


@pytest.mark.parametrize(
    "transform",
    [
        LocalGamma(lambda kernel: 3.0),
        BrightnessGradientAdditive(3.0, max_strength=lambda shape: 1.0),
    ],
)
def test_what_another_transform_offers_is_not_given_in_place_of_something_else(transform):
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        transform(image=noise((1, 5, 6, 7)), rng=generator())


def test_strengths_may_ask_for_image_and_kernel():
    seen = []

    def strength(_image, _kernel):
        seen.append((_image.shape, _kernel.shape, _kernel.dtype, float(_kernel.mean())))
        return 1.0

    BrightnessGradientAdditive(3.0, max_strength=strength)(
        image=noise((1, 5, 6, 7)), rng=generator()
    )
    assert seen[0][:3] == ((1, 5, 6, 7), (5, 6, 7), np.float32)
    assert abs(seen[0][3]) < 1e-6


def likeliest_share(shape, kernel):
    """Return the share of the likeliest voxel, from the distribution function in float64."""
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
        theirs = window_of_original(local.LocalTransform(1.0), shape, kernel)
        ours = LocalWindow(shape, kernel["loc"], kernel["scale"]).values(mean_centered=False)
        assert ours.any() == theirs.any()
        num_empty += not ours.any()
        # Below that the original computes with float32's numbers below 1e-38.
        if likeliest_share(shape, kernel) > 1e-30:
            np.testing.assert_allclose(ours, theirs, atol=2e-3)
    assert 20 < num_empty < 180


def test_nan_stays_where_it_is():
    image = noise((1, 5, 6, 7))
    image[0, 2, 3, 4] = np.nan
    for cls in (BrightnessGradientAdditive, LocalGamma):
        result = transform_of(cls)(image=image, rng=generator())["image"]
        np.testing.assert_array_equal(np.isnan(result), np.isnan(image))
