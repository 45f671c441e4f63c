"""Local transforms: their window, their formulas in float64, and agreement with batchgeneratorsv2."""

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
from tests.support.transforms.generators import generator, noise

SHAPES = ((1, 20, 23, 31), (3, 17, 8, 33), (2, 31, 29), (2, 7, 1, 12))
CLASSES = (BrightnessGradientAdditive, LocalContrast, LocalGamma, LocalSmoothing)
OPTIONS = {
    BrightnessGradientAdditive: {"max_strength": (-5, 5)},
    LocalContrast: {"new_contrast": (0.2, 3)},
    LocalGamma: {"gamma": (0.1, 4)},
    LocalSmoothing: {"kernel_size": (0.3, 3)},
}


def transform_of(cls, **options):
    return cls(
        (3.0, 30.0), loc=(-0.2, 1.2), **{**OPTIONS[cls], "same_for_all_channels": False, **options}
    )


def window(shape, kernel):
    """The window in float64, from SciPy's normal distribution, taking its smaller tail."""
    product = np.ones((1,) * len(shape))
    for axis, (n, loc, scale) in enumerate(zip(shape, kernel["loc"], kernel["scale"], strict=True)):
        faces = np.arange(n + 1) - 0.5
        upper = np.arange(n) > loc * n
        below, above = norm.cdf(faces, loc * n, scale), norm.sf(faces, loc * n, scale)
        share = np.where(upper, above[:-1] - above[1:], below[1:] - below[:-1])
        product = product * share.reshape([-1 if d == axis else 1 for d in range(len(shape))])
    product = product - product.min()
    return product / product.max()


def exactly(transform, image, params):
    """The formulas of batchgeneratorsv2 in float64."""
    result = image.astype(np.float64)
    for c, kernel in enumerate(params["kernels"]):
        x = result[c]
        w = window(x.shape, kernel)
        if isinstance(transform, BrightnessGradientAdditive):
            w = w - w.mean() if transform.mean_centered else w
            x += w / np.abs(w).max() * kernel["strength"]
        elif isinstance(transform, LocalContrast):
            mean = (x * w).sum() / (w.sum() + 1e-8)
            x += w * (params["contrasts"][c] - 1) * (x - mean)
        elif isinstance(transform, LocalGamma):
            low, extent = x.min(), x.max() - x.min()
            relative = (x - low) / extent
            x += w * extent * (relative ** params["gammas"][c] - relative)
        else:
            x += w * params["strengths"][c] * (ndimage.gaussian_filter(x, params["sigma"]) - x)
    return result


def as_batchgeneratorsv2(transform, image, params):
    """What the original makes of the same params, its kernels made by itself."""
    local = "batchgeneratorsv2.transforms.local"
    brightness = pytest.importorskip(f"{local}.brightness_gradient")
    contrast = pytest.importorskip(f"{local}.local_contrast")
    gamma = pytest.importorskip(f"{local}.local_gamma")
    smoothing = pytest.importorskip(f"{local}.local_smoothing")
    original = {
        BrightnessGradientAdditive: brightness.BrightnessGradientAdditiveTransform,
        LocalContrast: contrast.LocalContrastTransform,
        LocalGamma: gamma.LocalGammaTransform,
        LocalSmoothing: smoothing.LocalSmoothingTransform,
    }[type(transform)](1.0)
    kernels = []
    for kernel in params["kernels"]:
        original.loc, original.scale = (
            lambda _, d, of=kernel[name]: of[d] for name in ("loc", "scale")
        )
        made = original._generate_kernel(image.shape[1:])
        if isinstance(transform, BrightnessGradientAdditive):
            made = made - made.mean() if transform.mean_centered else made
            made = made / np.abs(made).max() * np.float32(kernel["strength"])
        kernels.append(made)
    return original._apply_to_image(
        torch.from_numpy(image.copy()), **{**params, "kernels": kernels}
    ).numpy()


@pytest.mark.parametrize("cls", CLASSES)
@pytest.mark.parametrize("shape", SHAPES)
def test_it_is_the_formula_in_float64_and_errs_no_more_than_batchgeneratorsv2(cls, shape):
    for seed in range(5):
        image = noise(shape, seed)
        transform = transform_of(cls)
        params = transform.sample(generator(seed), {"image": shape})
        ours = transform.apply({"image": image}, params)["image"]
        exact = exactly(transform, image, params)
        assert np.abs(ours - exact).max() < 1e-6 * max(1.0, np.abs(exact).max())
        theirs = as_batchgeneratorsv2(transform, image, params)
        assert np.abs(ours - theirs).max() < 1e-4
        # SciPy's blur sums in float64; half an ulp of the image's values is granted to sums in
        # float32
        assert np.sqrt(np.mean((ours - exact) ** 2)) <= max(
            1.05 * np.sqrt(np.mean((theirs - exact) ** 2)), 6e-8
        )


@pytest.mark.parametrize("offset", [1e2, 1e4, -1e4])
@pytest.mark.parametrize("shape", SHAPES)
def test_smoothing_errs_no_more_than_batchgeneratorsv2_at_a_large_offset(offset, shape):
    for seed in range(5):
        image = noise(shape, seed) + np.float32(offset)
        transform = transform_of(LocalSmoothing)
        params = transform.sample(generator(seed), {"image": shape})
        ours = transform.apply({"image": image}, params)["image"]
        exact = exactly(transform, image, params)
        theirs = as_batchgeneratorsv2(transform, image, params)
        assert np.abs(ours - exact).max() <= np.abs(theirs - exact).max()
        assert np.sqrt(np.mean((ours - exact) ** 2)) <= np.sqrt(np.mean((theirs - exact) ** 2))


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


def test_callables_get_shape_and_dim_by_name_or_by_position():
    for scale in (
        lambda dim, shape: shape[dim] / 2,
        lambda x, y: x[y] / 2,
        lambda x, *others: x[others[0]] / 2,
    ):
        drawn = LocalGamma(scale).sample(generator(), {"image": (1, 4, 6, 8)})
        assert drawn["kernels"][0]["scale"] == [2.0, 3.0, 4.0]


def test_what_another_transform_offers_is_not_given_in_place_of_something_else():
    for transform in (
        LocalGamma(lambda kernel: 3.0),
        BrightnessGradientAdditive(3.0, max_strength=lambda shape: 1.0),
    ):
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


def test_windows_saturate_to_nothing_where_batchgeneratorsv2s_do():
    local = pytest.importorskip("batchgeneratorsv2.transforms.local.local_transform")
    rng, shape, both = generator(11), (48, 60, 56), []
    for _ in range(200):
        kernel = {"loc": rng.uniform(-1, 2, 3), "scale": rng.uniform(1, 8, 3)}
        original = local.LocalTransform(1.0)
        original.loc, original.scale = (
            lambda _, d, of=kernel[name]: of[d] for name in ("loc", "scale")
        )
        theirs, ours = (
            original._generate_kernel(shape),
            LocalWindow(shape, kernel["loc"], kernel["scale"]).values(),
        )
        both.append((bool(theirs.any()), bool(ours.any())))
        if (
            np.prod([p.max() for p in axis_probabilities(shape, kernel)]) > 1e-30
        ):  # else float32's numbers below 1e-38
            np.testing.assert_allclose(ours, theirs, atol=2e-3)
    assert all(one == other for one, other in both)
    assert 0.1 < np.mean([not one for one, _ in both]) < 0.9


def axis_probabilities(shape, kernel):
    for n, loc, scale in zip(shape, kernel["loc"], kernel["scale"], strict=True):
        yield np.diff(norm.cdf(np.arange(n + 1) - 0.5, loc * n, scale))


def test_nan_stays_where_it_is():
    image = noise((1, 5, 6, 7))
    image[0, 2, 3, 4] = np.nan
    for cls in (BrightnessGradientAdditive, LocalGamma):
        result = transform_of(cls)(image=image, rng=generator())["image"]
        np.testing.assert_array_equal(np.isnan(result), np.isnan(image))
