"""The check of params before a kernel runs: wrong ones raise an error that names them."""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import detaug.transforms
from detaug import transforms as t
from detaug.transforms import Transform
from tests.support.transforms.every_transform import EVERY
from tests.support.transforms.generators import rng
from tests.support.transforms.params_fuzz import SHAPES, error_of, fuzz

PATCH = (8, 8, 8)


def volume(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape or (2, 9, 10, 11)).astype(np.float32)


def all_subclasses(cls: type) -> set[type]:
    """Return all of detaug's classes below a class."""
    subclasses = {kind for kind in cls.__subclasses__() if kind.__module__.startswith("detaug.")}
    return subclasses.union(*map(all_subclasses, subclasses))


def test_every_transform_says_what_params_it_takes() -> None:
    for module in pkgutil.walk_packages(detaug.transforms.__path__, "detaug.transforms."):
        import_module(module.name)
    without_checks = []
    for cls in all_subclasses(Transform):
        has_own_change = cls.change is not t.Transform.change
        if has_own_change and not hasattr(cls.change, "checks"):
            without_checks.append(cls.__name__)
    assert without_checks == []


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("dims", SHAPES)
def test_wrong_params_are_refused_by_name_or_applied_without_harm(name: str, dims: int) -> None:
    fuzz(name, dims, rounds=14, seed=1)


NO_FINITE_NUMBERS = [
    math.nan,
    math.inf,
    -math.inf,
    "a",
    None,
    10**400,
    [1, 2],
    np.zeros(3),
]


def with_scaling(scaling: Any) -> Transform:
    return t.SpatialTransform(PATCH, 0, False, p_scaling=1, scaling=scaling)


def with_shear(shear: Any) -> Transform:
    return t.SpatialTransform(PATCH, 0, False, p_shear=1, shear=shear)


def with_gamma(gamma: Any) -> Transform:
    return t.Gamma(gamma, 0, False, 1, 0)


def with_strength(max_strength: Any) -> Transform:
    return t.BrightnessGradientAdditive(3, 0.5, max_strength)


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("scaling", with_scaling),
        ("noise_variance", t.GaussianNoise),
        ("gamma", with_gamma),
        ("max_strength", with_strength),
    ],
)
@pytest.mark.parametrize("value", NO_FINITE_NUMBERS)
def test_a_callable_that_gives_no_finite_number_is_named_with_its_transform_and_argument(
    name: str, make: Callable[[Any], Transform], value: Any
) -> None:
    def wrong() -> Any:
        return value

    transform = make(wrong)
    class_name = type(transform).__name__
    pipeline = t.Compose([t.InvertImage(1), transform])
    with pytest.raises(
        ValueError, match=rf"^{class_name}: {name} must be finite numbers, but .*wrong.* gave "
    ):
        pipeline(image=volume(), rng=rng())


def nested(levels: int) -> list[Any]:
    value: list[Any] = [0.5]
    for _ in range(levels):
        value = [value]
    return value


def in_itself() -> dict[str, Any]:
    value: dict[str, Any] = {}
    value["again"] = [value]
    return value


@pytest.mark.parametrize("value", [nested(1500), in_itself()], ids=["nested", "in itself"])
@pytest.mark.parametrize("name", ["Mirror", "GibbsNoise", "SpatialTransform", "Contrast"])
def test_a_param_without_a_bottom_is_refused_by_name_and_can_be_shown(
    name: str, value: Any
) -> None:
    transform = EVERY[name](3)
    image = volume(2, 9, 9, 9)
    params = transform.sample(rng(), {"image": image.shape})
    for param in params:
        changed = {**params, param: value}
        with pytest.raises(
            ValueError, match=rf"^{name}: params\['{param}'\] must have at most 100 levels"
        ):
            transform.apply({"image": image}, changed)
        assert "..." in transform.describe(changed)


def test_an_argument_without_a_bottom_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^patch_size must have at most 100 levels"):
        t.SpatialTransform(nested(700), 0, False)


GHOSTS = {"num_ghosts": 3, "axis": 0, "intensity": 1, "restore": None}
MOTION = {"axis": 0, "rotations": [[0] * 3] * 2, "translations": [[1] * 3] * 2}
SPATIAL = t.SpatialTransform(PATCH, 0, False, p_rotation=1)


def one_for_any_region(region: np.ndarray) -> float:
    return 1.0


RECTANGLES = t.BlankRectangle([[2, 6]] * 3, one_for_any_region, 1)


def enormous() -> float:
    return 1e300


#: A transform, params that are replaced after they were drawn, and a part of the message.
OUT_OF_RANGE: list[tuple[Transform, dict[str, Any], str]] = [
    (
        with_shear(enormous),
        {},
        r"params\['affine'\]\[.\]\[.\]",
    ),
    (
        with_scaling(enormous),
        {},
        r"params\['affine'\]\[0\]\[0\]",
    ),
    (
        SPATIAL,
        {"center_location_in_pixels": [1e300, 4, 4]},
        r"\[0\] must be a number from -1e\+09 to 1e\+09, got 1e\+300",
    ),
    (
        SPATIAL,
        {"affine": [[1, 0], [0, 1]]},
        r"params\['affine'\] must be a list of 3, got .* with 2",
    ),
    (
        SPATIAL,
        {"elastic": {"key": 1, "sigmas": [1] * 3}},
        r"params\['elastic'\] have no 'magnitudes'",
    ),
    (
        SPATIAL,
        {"elastic": {"key": 1, "sigmas": [1] * 3, "magnitudes": [1, -0.5, 1]}},
        r"\['magnitudes'\]\[1\] must be a number from 0 to 1e\+06, got -0.5",
    ),
    (
        t.Ghosting(),
        {"ghosts": [{**GHOSTS, "axis": -1}] * 2},
        r"\[0\]\['axis'\] must be a spatial axis from 0 to 2, got -1",
    ),
    (
        t.Mirror((0,)),
        {"axes": [0, 3]},
        r"params\['axes'\]\[1\] must be a spatial axis from 0 to 2, got 3",
    ),
    (
        t.Mirror((0,)),
        {"axes": [1, 1]},
        "must not have an element twice",
    ),
    (
        t.Mirror((0,)),
        {"axis": [1]},
        "must have 'axes' only, got 'axis' as well",
    ),
    (
        t.OneOf([t.Mirror((0,))]),
        {"chosen": -1},
        "must be an integer from 0 to 0, got -1",
    ),
    (
        t.Compose([t.Mirror((0,))]),
        {"transforms": []},
        "must be a list of 1",
    ),
    (
        t.GaussianNoise(),
        {"key": 2**64},
        "must be an integer from 0 to 18446744073709551615",
    ),
    (
        t.GaussianNoise(),
        {"sigmas": [True, 0.1]},
        r"must be a number .*, got True of type bool",
    ),
    (
        t.GaussianNoise(),
        {"sigmas": [0.1]},
        "must be a list of 2",
    ),
    (
        t.GaussianNoise(),
        {"apply_to_channel": [0, 2]},
        "must be a channel from 0 to 1, got 2",
    ),
    (
        t.BiasField(),
        {"coefficients": [[1, 2, 3]] * 2},
        r"\[0\] must be a list of 20, got \[1, 2, 3\]",
    ),
    (
        t.Motion(),
        {"motions": [{**MOTION, "times": [0.5, 0.4]}] * 2},
        r"\[0\] must have times that rise, got \[0.5, 0.4\]",
    ),
    (
        t.ApplyRandomBinaryOperator(0),
        {"apply_to_channels": [-3]},
        "must be a channel from -2 to 1, got -3",
    ),
    (
        RECTANGLES,
        {"values": [[7], [-1]]},
        r"\[1\]\[0\] must be",
    ),
]


@pytest.mark.parametrize(("transform", "changed", "message"), OUT_OF_RANGE)
def test_params_out_of_range_are_errors_that_name_transform_param_value_and_range(
    transform: Transform, changed: dict[str, Any], message: str
) -> None:
    image = volume()
    original = image.copy()
    params = {**transform.sample(rng(), {"image": image.shape}), **changed}
    class_name = type(transform).__name__
    with pytest.raises((ValueError, TypeError, LookupError), match=class_name) as raised:
        transform.apply({"image": image}, params)
    assert raised.match(message)
    assert np.array_equal(image, original)


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("space", [(11, 11, 10), (11, 11)])
def test_params_of_a_larger_image_or_of_another_number_of_axes_do_no_harm(
    name: str, space: tuple[int, ...]
) -> None:
    transform = EVERY[name](3)
    large = {"image": (3, 40, 40, 33), "segmentation": (2, 40, 40, 33)}
    params = transform.sample(rng(), large)
    arrays = {"image": volume(3, *space), "segmentation": np.zeros((2, *space), np.int16)}
    error = error_of(partial(transform.apply, arrays, params))
    assert error is None or isinstance(error, (ValueError, TypeError, IndexError, KeyError))


#: Transforms with the widest ranges that each argument may have.
EXTREME = [
    t.GaussianBlur((0, 20)),
    t.MedianFilter((1, 9)),
    t.GaussianNoise((0, 1e30)),
    t.Gamma((1e-3, 64), 0.5, False, 1, 0.5),
    t.MultiplicativeBrightness((-1e30, 1e30), False),
    t.BrightnessAdditive(-1e30, 1e30),
    t.RicianNoise((0, 1e15)),
    t.SimulateLowResolution((1e-6, 3), False, False, None),
    t.Anisotropy(downsampling=(1, 1e6)),
    t.Ghosting((0, 1000), intensity=(0, 1e6), restore=(0, 1)),
    t.Spikes((0, 5), (-1e6, 1e6)),
    t.GibbsNoise((0, 1)),
    t.Motion((-6.28, 6.28), (-1e6, 1e6), 5),
    t.BiasField((-20, 20), 10),
    t.Sharpening((-1e6, 1e6)),
    t.CutOffOutliers((0, 100), (0, 100)),
    t.LocalGamma((1e-3, 1e6), (-1e3, 1e3), (1e-3, 64)),
    t.LocalSmoothing((1e-3, 1e6), (-1e3, 1e3), (-1e3, 1e3), (0, 20)),
    t.ApplyRandomBinaryOperator((0, 1), strel_size=(0, 12)),
]


def extreme_in_space(shape: tuple[int, ...]) -> list[Transform]:
    """Return spatial transforms with the widest ranges, for images of this spatial shape."""
    spatial = t.SpatialTransform(
        patch_size=shape,
        patch_center_dist_from_border=0,
        random_crop=True,
        p_elastic_deform=1,
        elastic_deform_scale=(0, 5),
        elastic_deform_magnitude=(0, 1000),
        p_rotation=1,
        rotation=(-6.28, 6.28),
        p_scaling=1,
        scaling=(1e-3, 100),
        p_shear=1,
        shear=(-5, 5),
        p_translation=1,
        translation=(-1e4, 1e4),
    )
    return [spatial, t.RandomCrop([3 * length for length in shape])]


@pytest.mark.parametrize("dims", SHAPES)
def test_whatever_is_drawn_passes_at_the_ends_of_the_ranges(dims: int) -> None:
    shape = SHAPES[dims]
    image = volume(2, *shape)
    for transform in EXTREME + extreme_in_space(shape):
        for seed in range(3):
            with np.errstate(all="ignore"):
                transform(image=image, rng=rng(seed))


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64, np.longdouble])
def test_numpys_numbers_count_as_pythons_however_few_bits_they_have(kind: Any) -> None:
    image = volume(1, 11, 11, 10)
    transform = t.SpatialTransform((8, 8, 8), 0, False, p_scaling=1)
    params = transform.sample(rng(), {"image": image.shape})
    params["affine"][1][1] = float(kind(6e4))
    expected = transform.apply({"image": image}, params)["image"]
    params["affine"][1][1] = kind(6e4)
    assert np.array_equal(transform.apply({"image": image}, params)["image"], expected)


def between_07_and_14(rng: np.random.Generator, image: np.ndarray) -> float:
    return rng.uniform(0.7, 1.4)


@pytest.mark.parametrize("key", [None, -1, 0.5, "7", 2**64])
def test_a_key_from_which_params_are_drawn_later_is_checked_as_well(key: Any) -> None:
    image = volume()
    gamma = t.Gamma(between_07_and_14, 0, False, 1, 1)
    with pytest.raises((TypeError, ValueError), match=r"Gamma: params\['deferred_key'\] must be"):
        gamma.apply({"image": image}, {"deferred_key": key})
    with pytest.raises(ValueError, match="sigmas"):
        gamma.apply({"image": image}, {"deferred_key": 7, "sigmas": [1]})
