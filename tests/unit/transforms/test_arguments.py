"""Arguments that cannot be right are refused by name: when a transform is made, or at the latest when it meets a sample."""

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
        **{"patch_size": (8, 8), "patch_center_dist_from_border": 0, "random_crop": False, **options}
    )


def low_resolution(scale: Any, **options: Any) -> t.SimulateLowResolution:
    return t.SimulateLowResolution(scale, False, False, **{"ignore_axes": None, **options})


VALUES: list[tuple[Callable[[], Any], str]] = [
    (lambda: t.MultiplicativeBrightness((2, 1), False), "low <= high"),
    (lambda: t.MultiplicativeBrightness(np.nan, False), "finite"),
    (lambda: t.MultiplicativeBrightness((1, 2), False, 1.5), "probability"),
    (lambda: t.BrightnessAdditive(1, 0.5), "evenly between mu and sigma"),
    (lambda: t.BrightnessAdditive(0, -1, False), "sigma"),
    (lambda: t.BGContrast((0.2, 0.9)), "reach up to 1"),
    (lambda: t.Gamma((0, 1), 0, False, 1, 1), "greater than 0"),
    (lambda: t.Gamma(1, 2, False, 1, 1), "p_invert_image"),
    (lambda: t.InvertImage(-0.1), "probability"),
    (lambda: t.CutOffOutliers(-1), "percentile_lower"),
    (lambda: t.CutOffOutliers(1, 101), "percentile_upper"),
    *((lambda make=make, bad=bad: make(bad), "noise_variance")
      for make in (t.GaussianNoise, t.RicianNoise) for bad in (-1, (0.2, 0.1), (0.1, NAN), (1, 2, 3))),
    *((lambda bad=bad: t.GaussianBlur(bad), "blur_sigma") for bad in ((2, 1), -1, NAN)),
    (lambda: t.GaussianBlur(p_per_channel=1.5), "p_per_channel"),
    *((lambda bad=bad: t.MedianFilter(bad), "filter_size") for bad in (0, (0, 3), (3, 3), (1, 2, 3))),
    (lambda: t.Sharpening((1, 0)), "strength"),
    (lambda: t.Sharpening(p_clamp_intensities=2), "p_clamp_intensities"),
    *((lambda bad=bad: low_resolution(bad), "scale") for bad in (0, -1, (0, 1), (1, 0.5), NAN)),
    (lambda: low_resolution(1, ignore_axes=(3,)), "ignore_axes"),
    (lambda: t.Rot90(1, allowed_axes=(1,)), "two axes"),
    (lambda: t.Rot90((3, 1)), "low <= high"),
    (lambda: t.CenterCrop((3, 3), pad_mode="reflection"), "pad_mode"),
    (lambda: t.CenterCrop((3, 0)), "positive"),
    (lambda: t.crop_array(np.zeros((1, 4, 4)), (1, 2, 3), (3, 3, 3)), "per spatial axis"),
    (lambda: t.ApplyRandomBinaryOperator([0], ("dilate",)), "'dilate'"),
    (lambda: t.ApplyRandomBinaryOperator([0], ()), "at least one"),
    (lambda: t.ApplyRandomBinaryOperator([0], strel_size=-1), "strel_size"),
    (lambda: Components([0], 1.5), "fill_with_other_class_p"),
    (lambda: t.MoveChannels(3, "image", "image"), "must be two of"),
    (lambda: t.MoveChannels(3, "image", "keypoints"), "must be two of"),
    (lambda: spatial(patch_size=(8,)), "patch_size"),
    (lambda: spatial(patch_size=(8, 0)), "patch_size"),
    (lambda: spatial(rotation=(1, 0)), "rotation"),
    (lambda: spatial(rotation=(0, NAN)), "rotation"),
    (lambda: spatial(scaling=(0, 1)), "scaling"),
    (lambda: spatial(p_rotation=1.5), "p_rotation"),
    (lambda: spatial(mode_seg="linear"), "mode_seg"),
    (lambda: spatial(padding_mode_image="wrap"), "padding_mode_image"),
    (lambda: spatial(seg_tiebreak="first"), "seg_tiebreak"),
    (lambda: spatial(patch_center_dist_from_border=(1, 2, 3)), "patch_center_dist_from_border"),
    (lambda: spatial(padding_value_image=INF), "padding_value_image"),
    (lambda: spatial(p_shear=2), "p_shear"),
    (lambda: spatial(shear=(1, 0)), "shear"),
    (lambda: spatial(translation=(0, INF)), "translation"),
    (lambda: spatial(p_translation=-1), "p_translation"),
]  # fmt: skip
KINDS: list[tuple[Callable[[], Any], str]] = [
    (lambda: t.BrightnessAdditive("0", 1), "number"),  # type: ignore[arg-type]
    (lambda: t.Contrast("2", True, False), "contrast_range"),  # type: ignore[arg-type]
    (lambda: t.BGContrast(1.0), "callable"),  # type: ignore[arg-type]
    *((lambda bad=bad: t.MedianFilter(bad), "filter_size") for bad in (1.5, "3", True)),
    (lambda: t.Rot90(1, num_rot_per_combination=(0.5,)), "integers"),  # type: ignore[arg-type]
    (lambda: t.crop_array(np.zeros((1, 4, 4)), (1.5, 2), (3, 3)), "integers"),  # type: ignore[arg-type]
    (lambda: spatial(p_scaling="often"), "p_scaling"),
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
    (t.Mirror((0, 2)), {}, ValueError, "0 to 1"),
    (t.Rot90(1), {}, ValueError, "0 to 1"),
    (t.TransposeAxes((0, 1)), {}, ValueError, "different lengths"),
    (t.CenterCrop((3, 3, 3)), {"segmentation": None}, ValueError, "must be|does not fit"),
    (t.ApplyRandomBinaryOperator([3]), {}, IndexError, "channel 3"),
    (Components([-4]), {}, IndexError, "channel -4"),
    (t.MoveChannels(3, "image", "segmentation"), {}, IndexError, "channel 3"),
    (t.MoveChannels(0, "regression_target", "image"), {}, ValueError, "no regression_target"),
    (t.MoveSegAsOneHotToData(2, (1,)), {}, IndexError, "channel 2"),
    (t.MoveSegAsOneHotToData(0, (1,)), {"segmentation": LABELS[:, 1:]}, ValueError, "one spatial shape"),
    (t.RemoveLabel(1, 0, 2), {}, IndexError, "channel 2"),
    (t.ConvertSegmentationToRegions([1], -3), {}, IndexError, "channel -3"),
    (t.MaskImage([0]), {"segmentation": LABELS[:, 1:]}, ValueError, "one spatial shape"),
    (spatial(p_rotation=1), {"segmentation": LABELS[:, 1:]}, ValueError, "differ"),
    (spatial(patch_size=(8, 8, 8)), {}, ValueError, "must be|does not fit"),
    (spatial(p_rotation=1), {"segmentation": np.full((1, 4, 5), np.nan, np.float32)}, ValueError, "NaN"),
    (t.Mirror((0, 1)), {"segmentation": LABELS[:, 1:]}, ValueError, "differ"),
    (t.Convert3DTo2D(), {}, ValueError, r"must be \(C, X, Y, Z\)"),
    (t.Convert2DTo3D(), {"image": PLANES, "segmentation": None}, ValueError, "must come before"),
    (
        t.Convert2DTo3D(),
        {"image": PLANES[:3], "segmentation": None, "nchannels_img": 2},
        ValueError,
        "must stay as many",
    ),
    (
        t.Convert2DTo3D(),
        {"image": PLANES, "segmentation": None, "nchannels_img": 2, "keypoints": np.zeros((2, 2))},
        ValueError,
        "no row may be lost",
    ),
]


@pytest.mark.parametrize(("transform", "given", "error", "says"), WITH_A_SAMPLE)
def test_what_does_not_fit_the_sample_is_refused(
    transform: t.Transform, given: dict[str, Any], error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        transform(**{"image": IMAGE, "segmentation": LABELS, **given}, rng=SeedTree(3).generator(0, 0))


@pytest.mark.parametrize(
    ("transform", "params", "points", "says"),
    [
        (t.TransposeAxes((0, 1)), {"axis_order": [1, 0, 2]}, {}, "axis_order"),
        (t.Mirror((0,)), {"axes": [0]}, {"keypoints": np.zeros((2, 3))}, r"\(N, 2\)"),
    ],
)
def test_params_and_points_of_another_sample_are_refused(
    transform: t.Transform, params: dict[str, Any], points: dict[str, Any], says: str
) -> None:
    with pytest.raises(ValueError, match=says):
        transform.apply({"image": IMAGE, **points}, params)


def test_a_call_outside_of_an_augmenter_needs_a_generator() -> None:
    with pytest.raises(RuntimeError, match="rng="):
        t.Mirror((0,))(image=IMAGE)
