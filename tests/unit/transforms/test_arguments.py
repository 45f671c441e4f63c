"""Arguments that cannot be right are refused by name: when a transform is made, or at the latest
when it meets a sample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from detaug import SeedTree
from detaug import transforms as t

Components = t.RemoveRandomConnectedComponentFromOneHotEncoding
NAN, INF = float("nan"), float("inf")


def spatial(**options: Any) -> t.SpatialTransform:
    return t.SpatialTransform(
        **{
            "patch_size": (8, 8),
            "patch_center_dist_from_border": 0,
            "random_crop": False,
            **options,
        }
    )


def low_resolution(scale: Any, **options: Any) -> t.SimulateLowResolution:
    return t.SimulateLowResolution(scale, False, False, **{"ignore_axes": None, **options})


def bad(make: Callable[[Any], Any], says: str, *values: Any) -> list[tuple[Callable[[], Any], str]]:
    return [(lambda value=value: make(value), says) for value in values]


VALUES: list[tuple[Callable[[], Any], str]] = [
    *bad(lambda bad: t.MultiplicativeBrightness(bad, False), "multiplier_range", (2, 1), NAN, (1, 2, 3)),
    *bad(lambda bad: t.BrightnessAdditive(*bad), "sigma", (1, 0.5), (0, -1, False)),
    *bad(t.BGContrast, "reach up to 1", (0.2, 0.9)),
    *bad(lambda bad: t.Gamma(*bad, False, 1, 1), "gamma|p_invert_image", ((0, 1), 0), (1, 2)),
    *bad(t.InvertImage, "p_invert_image", -0.1),
    *bad(lambda bad: t.CutOffOutliers(*bad), "percentile_lower|percentile_upper", (-1,), (1, 101)),
    *bad(t.GaussianNoise, "noise_variance", -1, (0.1, NAN)),
    *bad(t.RicianNoise, "noise_variance", -1),
    *bad(t.GaussianBlur, "blur_sigma", (2, 1), -1),
    *bad(t.MedianFilter, "filter_size", 0, (3, 3), (1, 2, 3)),
    *bad(t.Sharpening, "strength", (1, 0)),
    *bad(low_resolution, "scale", 0, (1, 0.5)),
    *bad(lambda bad: low_resolution(1, ignore_axes=bad), "ignore_axes", (3,)),
    *bad(lambda bad: t.Rot90(1, allowed_axes=bad), "two axes", (1,)),
    *bad(t.Rot90, "low <= high", (3, 1)),
    *bad(t.CenterCrop, "crop_size", (3, 0), (3,)),
    *bad(lambda bad: spatial(border_mode_seg="constant", padding_value_seg=bad), "padding_value_seg", 2**31, -(2**31) - 1),
    *bad(lambda bad: t.ApplyRandomBinaryOperator([0], bad), "any_of_these", ("dilate",), (), (len,)),
    *bad(lambda bad: t.ApplyRandomBinaryOperator([0], strel_size=bad), "strel_size", -1, 300),
    *bad(lambda bad: Components([0], bad), "fill_with_other_class_p", 1.5),
    *bad(t.Anisotropy, "axes", (3,), ()),
    *bad(lambda bad: t.Anisotropy(downsampling=bad), "downsampling", 0.9, (3, 2)),
    *bad(lambda bad: t.Anisotropy(profile=bad), "profile", "mean"),
    *bad(lambda bad: t.BiasField(order=bad), "order", -1, 11),
    *bad(lambda bad: t.BiasField(basis=bad), "basis", "fourier"),
    *bad(lambda bad: t.BlankRectangle(bad, 0, 1), "rectangle_size", 0, [[3, 2], [2, 3]], [[1, 2, 3], [2, 3]]),
    *bad(lambda bad: t.BlankRectangle(2, *bad), "rectangle_value|num_rectangles", ((1, 0), 1), (0, -1)),
    *bad(t.Ghosting, "num_ghosts", (5, 3)),
    *bad(lambda bad: t.Ghosting(restore=bad), "restore must be a number from 0 to 1", 1.5),
    *bad(t.GibbsNoise, "alpha must be a number from 0 to 1", 1.1),
    *bad(t.LocalContrast, "scale", 0, (5, 1), INF),
    *bad(lambda bad: t.LocalGamma(1, gamma=bad), "gamma", 0, (0.5, 65), NAN),
    *bad(lambda bad: t.LocalSmoothing(1, kernel_size=bad), "kernel_size", -1),
    *bad(t.Motion, "radians", 10),
    *bad(lambda bad: t.Motion(num_transforms=bad), "num_transforms", 0),
    *bad(t.Spikes, "num_spikes", -1),
    *(case for name, value in {
        "patch_size": (8, 0), "rotation": (0, NAN), "scaling": (0, 1), "p_rotation": 1.5, "mode_seg": "bicubic",
        "mode_image": "linear", "padding_mode_image": "reflection", "border_mode_seg": "border",
        "seg_tiebreak": "lowest", "patch_center_dist_from_border": (1, 2, 3),
        "padding_value_image": INF, "p_shear": 2, "shear": (1, 0), "translation": (0, INF),
    }.items() for case in bad(lambda bad, name=name: spatial(**{name: bad}), name, value)),
]  # fmt: skip
KINDS: list[tuple[Callable[[], Any], str]] = [
    *bad(lambda bad: t.BrightnessAdditive(bad, 1), "number", "0"),
    *bad(lambda bad: t.Contrast(bad, True, False), "contrast_range", "2"),
    *bad(t.BGContrast, "callable", 1.0),
    *bad(t.MedianFilter, "filter_size", 1.5, "3", True),
    *bad(lambda bad: t.Rot90(1, bad), "num_rot_per_combination", (0.5,)),
    *bad(lambda bad: t.BiasField(order=bad), "order", 2.5),
    *bad(lambda bad: t.Motion(num_transforms=bad), "num_transforms", (1, 3)),
    *bad(lambda bad: spatial(p_scaling=bad), "p_scaling", "often"),
]


@pytest.mark.parametrize(("make", "says"), VALUES)
def test_a_value_out_of_range_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        make()


@pytest.mark.parametrize(("make", "says"), KINDS)
def test_a_value_of_another_kind_is_refused(make: Callable[[], Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        make()


IMAGE = np.zeros((2, 4, 5), np.float32)
LABELS = np.zeros((2, 4, 5), np.int16)
PLANES = np.zeros((4, 4, 4), np.float32)
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


@pytest.mark.parametrize(("transform", "given", "error", "says"), WITH_A_SAMPLE)
def test_what_does_not_fit_the_sample_is_refused(
    transform: t.Transform, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        transform(
            **{"image": IMAGE, "segmentation": LABELS, **given}, rng=SeedTree(3).generator(0, 0)
        )


def test_a_call_outside_of_an_augmenter_needs_a_generator() -> None:
    with pytest.raises(RuntimeError, match="rng="):
        t.Mirror((0,))(image=IMAGE)
