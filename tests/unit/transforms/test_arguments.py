"""Wrong arguments are refused by name when a transform is created, or with its first sample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from detaug import SeedTree
from detaug import transforms as t

Components = t.RemoveRandomConnectedComponentFromOneHotEncoding
NAN = float("nan")
INF = float("inf")

#: Right values for the arguments without a default.
NEEDED: dict[type, dict[str, Any]] = {
    t.MultiplicativeBrightness: {"multiplier_range": 1, "synchronize_channels": False},
    t.BrightnessAdditive: {"mu": 0, "sigma": 1},
    t.BGContrast: {"contrast_range": (0.5, 2)},
    t.Contrast: {"contrast_range": 1, "preserve_range": True, "synchronize_channels": False},
    t.Gamma: {
        "gamma": 1,
        "p_invert_image": 0,
        "synchronize_channels": False,
        "p_per_channel": 1,
        "p_retain_stats": 1,
    },
    t.InvertImage: {"p_invert_image": 1},
    t.MedianFilter: {"filter_size": 3},
    t.SimulateLowResolution: {
        "scale": 1,
        "synchronize_channels": False,
        "synchronize_axes": False,
        "ignore_axes": None,
    },
    t.Rot90: {"num_axis_combinations": 1},
    t.CenterCrop: {"crop_size": (3, 3)},
    t.SpatialTransform: {
        "patch_size": (8, 8),
        "patch_center_dist_from_border": 0,
        "random_crop": False,
        "border_mode_seg": "constant",
    },
    t.ApplyRandomBinaryOperator: {"channel_idx": [0]},
    Components: {"channel_idx": [0]},
    t.BlankRectangle: {"rectangle_size": 2, "rectangle_value": 0, "num_rectangles": 1},
    t.LocalContrast: {"scale": 1},
    t.LocalGamma: {"scale": 1},
    t.LocalSmoothing: {"scale": 1},
}


def with_argument(kind: type, **changed: Any) -> Any:
    return kind(**{**NEEDED.get(kind, {}), **changed})


def low_resolution(scale: Any = 1, **options: Any) -> t.SimulateLowResolution:
    return with_argument(t.SimulateLowResolution, scale=scale, **options)


def spatial(**options: Any) -> t.SpatialTransform:
    return with_argument(t.SpatialTransform, **options)


Wrong = dict[type, dict[str, list[Any]]]

#: Transform -> argument -> values out of its range.
OUT_OF_RANGE: Wrong = {
    t.MultiplicativeBrightness: {
        "multiplier_range": [(2, 1), NAN, (1, 2, 3)],
    },
    t.Gamma: {
        "gamma": [0, (0, 1)],
        "p_invert_image": [2],
    },
    t.InvertImage: {
        "p_invert_image": [-0.1],
    },
    t.CutOffOutliers: {
        "percentile_lower": [-1],
        "percentile_upper": [101],
    },
    t.GaussianNoise: {
        "noise_variance": [-1, (0.1, NAN)],
    },
    t.RicianNoise: {
        "noise_variance": [-1],
    },
    t.GaussianBlur: {
        "blur_sigma": [(2, 1), -1],
    },
    t.MedianFilter: {
        "filter_size": [0, (3, 3), (1, 2, 3)],
    },
    t.Sharpening: {
        "strength": [(1, 0)],
    },
    t.SimulateLowResolution: {
        "scale": [0, (1, 0.5)],
        "ignore_axes": [(3,)],
    },
    t.CenterCrop: {
        "crop_size": [(3, 0), (3,)],
    },
    t.SpatialTransform: {
        "border_mode_seg": ["border"],
        "elastic_deform_magnitude": [-0.1, (-1, 1)],
        "mode_image": ["linear"],
        "mode_seg": ["bicubic"],
        "p_rotation": [1.5],
        "p_shear": [2],
        "padding_mode_image": ["reflection"],
        "padding_value_image": [INF],
        "padding_value_seg": [2**31, -(2**31) - 1],
        "patch_center_dist_from_border": [(1, 2, 3)],
        "patch_size": [(8, 0)],
        "rotation": [(0, NAN)],
        "scaling": [(0, 1)],
        "seg_tiebreak": ["lowest"],
        "shear": [(1, 0)],
        "translation": [(0, INF)],
    },
    t.ApplyRandomBinaryOperator: {
        "any_of_these": [("dilate",), (), (len,)],
        "strel_size": [-1, 300],
    },
    Components: {
        "fill_with_other_class_p": [1.5],
    },
    t.Anisotropy: {
        "axes": [(3,), ()],
        "downsampling": [0.9, (3, 2)],
        "profile": ["mean"],
    },
    t.BiasField: {
        "basis": ["fourier"],
        "order": [-1, 11],
    },
    t.BlankRectangle: {
        "num_rectangles": [-1],
        "rectangle_size": [0, [[3, 2], [2, 3]], [[1, 2, 3], [2, 3]]],
        "rectangle_value": [(1, 0)],
    },
    t.Ghosting: {
        "num_ghosts": [(5, 3)],
    },
    t.LocalContrast: {
        "scale": [0, (5, 1), INF],
    },
    t.LocalGamma: {
        "gamma": [0, (0.5, 65), NAN],
    },
    t.LocalSmoothing: {
        "kernel_size": [-1],
    },
    t.Motion: {
        "num_transforms": [0],
    },
    t.Spikes: {
        "num_spikes": [-1],
    },
}
#: Transform -> argument -> values of a wrong type.
OF_ANOTHER_KIND: Wrong = {
    t.MedianFilter: {
        "filter_size": [1.5, "3", True],
    },
    t.Contrast: {
        "contrast_range": ["2"],
    },
    t.Rot90: {
        "num_rot_per_combination": [(0.5,)],
    },
    t.BiasField: {
        "order": [2.5],
    },
    t.Motion: {
        "num_transforms": [(1, 3)],
    },
    t.SpatialTransform: {
        "p_scaling": ["often"],
    },
}


def cases_of(table: Wrong) -> list[Any]:
    """Return a case for each value of a table."""
    cases = []
    for kind, arguments in table.items():
        for name, values in arguments.items():
            for value in values:
                label = f"{kind.__name__} {name} {value}"
                cases.append(pytest.param(kind, name, value, id=label))
    return cases


@pytest.mark.parametrize(("kind", "name", "value"), cases_of(OUT_OF_RANGE))
def test_a_value_out_of_range_is_refused_by_its_name(kind: type, name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        with_argument(kind, **{name: value})


@pytest.mark.parametrize(("kind", "name", "value"), cases_of(OF_ANOTHER_KIND))
def test_a_value_of_another_kind_is_refused_by_its_name(kind: type, name: str, value: Any) -> None:
    with pytest.raises(TypeError, match=name):
        with_argument(kind, **{name: value})


#: Wrong values with more in the message than the argument's name.
EXPLAINED: list[tuple[type, str, Any, type[Exception], str]] = [
    (t.BGContrast, "contrast_range", (0.2, 0.9), ValueError, "reach up to 1"),
    (t.BGContrast, "contrast_range", 1.0, TypeError, "callable"),
    (t.BrightnessAdditive, "mu", "0", TypeError, "number"),
    (t.Rot90, "allowed_axes", (1,), ValueError, "two axes"),
    (t.Rot90, "num_axis_combinations", (3, 1), ValueError, "low <= high"),
    (t.Ghosting, "restore", 1.5, ValueError, "restore must be a number from 0 to 1"),
    (t.GibbsNoise, "alpha", 1.1, ValueError, "alpha must be a number from 0 to 1"),
    (t.Motion, "rotation", 10, ValueError, "radians"),
]


@pytest.mark.parametrize(("kind", "name", "value", "error", "message"), EXPLAINED)
def test_a_wrong_value_is_explained(
    kind: type, name: str, value: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        with_argument(kind, **{name: value})


@pytest.mark.parametrize(("mu", "sigma", "together"), [(1, 0.5, True), (0, -1, False)])
def test_a_wrong_spread_of_brightness_is_refused(mu: float, sigma: float, together: bool) -> None:
    with pytest.raises(ValueError, match="sigma"):
        t.BrightnessAdditive(mu, sigma, together)


IMAGE = np.zeros((2, 4, 5), np.float32)
LABELS = np.zeros((2, 4, 5), np.int16)
PLANES = np.zeros((4, 4, 4), np.float32)
#: Transform, arrays of the sample besides image and labels, the error, and a part of its message.
WITH_A_SAMPLE: list[tuple[t.Transform, dict[str, Any], type[Exception], str]] = [
    (low_resolution(1, ignore_axes=(2,)), {}, ValueError, "ignore_axes"),
    (low_resolution(1, allowed_channels=(2,)), {}, IndexError, "allowed_channels"),
    (low_resolution(lambda: -1.0), {}, ValueError, "scale"),
    (t.Anisotropy((2,)), {}, ValueError, "axes"),
    (t.Anisotropy(downsampling=lambda: 0.5), {}, ValueError, "downsampling"),
    (t.BlankRectangle(5, 0, 1), {}, ValueError, r"\[5, 5\] voxels .* \[4, 5\]"),
    (t.BlankRectangle((2, 2, 2), 0, 1), {}, ValueError, "for 3 axes, but the image has 2"),
    (t.LocalGamma(lambda: 0.0), {}, ValueError, "scale"),
    (t.LocalGamma(5.0, gamma=lambda: 0.0), {}, ValueError, "gammas"),
    (t.Gamma(lambda: 65.0, 0, False, 1, 0), {}, ValueError, "gamma"),
    (t.Mirror((0, 2)), {}, ValueError, "0 to 1"),
    (t.Rot90(1), {}, ValueError, "0 to 1"),
    (t.TransposeAxes((0, 1)), {}, ValueError, "different lengths"),
    (t.CenterCrop((3, 3, 3)), {"segmentation": None}, ValueError, "must be|does not fit"),
    (t.ApplyRandomBinaryOperator([3]), {}, IndexError, "channel 3"),
    (
        t.MoveSegAsOneHotToData(0, (1,)),
        {"segmentation": LABELS[:, 1:]},
        ValueError,
        "one spatial shape",
    ),
    (t.RemoveLabel(1, 0, 2), {}, IndexError, "channel 2"),
    (t.ConvertSegmentationToRegions([1], -3), {}, IndexError, "channel -3"),
    (t.MaskImage([0]), {"segmentation": LABELS[:, 1:]}, ValueError, "one spatial shape"),
    (spatial(p_rotation=1), {"segmentation": LABELS[:, 1:]}, ValueError, "differ"),
    (t.Mirror((0, 1)), {"segmentation": LABELS[:, 1:]}, ValueError, "differ"),
    (t.Convert3DTo2D(), {}, ValueError, r"must be \(C, X, Y, Z\)"),
    (t.Convert2DTo3D(), {"image": PLANES, "segmentation": None}, ValueError, "must come before"),
    (
        t.Convert2DTo3D(),
        {"image": PLANES[:3], "segmentation": None, "nchannels_img": 2},
        ValueError,
        "must stay as many",
    ),
]


@pytest.mark.parametrize(("transform", "arrays", "error", "message"), WITH_A_SAMPLE)
def test_what_does_not_fit_the_sample_is_refused(
    transform: t.Transform, arrays: dict[str, Any], error: type[Exception], message: str
) -> None:
    sample = {"image": IMAGE, "segmentation": LABELS, **arrays}
    with pytest.raises(error, match=message):
        transform(**sample, rng=SeedTree(3).generator(0, 0))


def test_a_call_outside_of_an_augmenter_needs_a_generator() -> None:
    with pytest.raises(RuntimeError, match="rng="):
        t.Mirror((0,))(image=IMAGE)
