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
    (lambda: t.MultiplicativeBrightness((1, 2), False, 1.5), "p_per_channel"),
    (lambda: t.BrightnessAdditive(1, 0.5), "evenly between mu and sigma"),
    (lambda: t.BrightnessAdditive(0, -1, False), "sigma"),
    (lambda: t.BGContrast((0.2, 0.9)), "reach up to 1"),
    (lambda: t.Gamma((0, 1), 0, False, 1, 1), "greater than 0"),
    (lambda: t.Gamma(1, 2, False, 1, 1), "p_invert_image"),
    (lambda: t.InvertImage(-0.1), "p_invert_image"),
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
    (lambda: t.CenterCrop((3, 0)), "crop_size"),
    (lambda: t.ApplyRandomBinaryOperator([0], ("dilate",)), "'dilate'"),
    (lambda: t.ApplyRandomBinaryOperator([0], ()), "at least one"),
    (lambda: t.ApplyRandomBinaryOperator([0], strel_size=-1), "strel_size"),
    (lambda: Components([0], 1.5), "fill_with_other_class_p"),
    (lambda: t.MoveChannels(3, "image", "image"), "must be two of"),
    (lambda: t.MoveChannels(3, "image", "keypoints"), "must be two of"),
    (lambda: t.Anisotropy((3,)), "axes"),
    (lambda: t.Anisotropy(()), "axes"),
    *((lambda bad=bad: t.Anisotropy(downsampling=bad), "downsampling") for bad in (0.9, (3, 2))),
    (lambda: t.Anisotropy(profile="mean"), "profile"),
    *((lambda bad=bad: t.BiasField(order=bad), "order") for bad in (-1, 11)),
    (lambda: t.BiasField(basis="fourier"), "basis"),
    (lambda: t.BiasField((1, 0)), "coefficients"),
    (lambda: t.BiasField(p_per_channel=2), "p_per_channel"),
    (lambda: t.BlankRectangle(0, 0, 1), "rectangle_size"),
    (lambda: t.BlankRectangle([[3, 2], [2, 3]], 0, 1), "rectangle_size"),
    (lambda: t.BlankRectangle([[1, 2, 3], [2, 3]], 0, 1), "rectangle_size"),
    *((lambda bad=bad: t.BlankRectangle(2, bad, 1), "rectangle_value") for bad in ((1, 0), NAN)),
    (lambda: t.BlankRectangle(2, 0, -1), "num_rectangles"),
    (lambda: t.BlankRectangle(2, 0, 1, False, 2), "p_per_channel"),
    (lambda: t.ChannelMisalignment(), "rad_or_deg"),
    (lambda: t.ChannelMisalignment(rotation_ax_cor_sag=(5, 5, 5), rad_or_deg="rad"), "degrees"),
    (lambda: t.ChannelMisalignment(squeezing_zyx=(1, 0, 0), rad_or_deg="deg"), "below 1"),
    (lambda: t.CoarseShuffle(0, 3), "holes"),
    (lambda: t.CoarseShuffle(3, 3, 2), "max_holes"),
    (lambda: t.CoarseShuffle(1, 0), "spatial_size"),
    (lambda: t.CoarseShuffle(1, 3, None, (2, 0)), "max_spatial_size"),
    (lambda: t.CoarseDropout(1, 2, fill_value=(2, 1)), "fill_value"),
    (lambda: t.Ghosting((5, 3)), "num_ghosts"),
    (lambda: t.Ghosting(restore=1.5), "restore must be a number from 0 to 1"),
    (lambda: t.Ghosting(intensity=-1), "intensity"),
    (lambda: t.Ghosting(axes=(3,)), "axes"),
    (lambda: t.GibbsNoise(1.1), "alpha must be a number from 0 to 1"),
    *((lambda bad=bad: t.HistogramShift(bad), "num_control_points") for bad in (2, (2, 5), (6, 5), (3, 4, 5))),
    *((lambda bad=bad: t.LocalContrast(bad), "scale") for bad in (0, -1, (5, 1), INF)),
    (lambda: t.LocalContrast(1, loc=(2, 1)), "loc"),
    (lambda: t.LocalGamma(1, gamma=0), "gamma"),
    (lambda: t.LocalGamma(1, gamma=65), "gamma"),
    (lambda: t.LocalSmoothing(1, kernel_size=-1), "kernel_size"),
    (lambda: t.Motion(10), "radians"),
    (lambda: t.Motion(num_transforms=0), "num_transforms"),
    (lambda: t.Spikes(-1), "num_spikes"),
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
    (lambda: t.Rot90(1, num_rot_per_combination=(0.5,)), "num_rot_per_combination"),  # type: ignore[arg-type]
    (lambda: t.BiasField(order=2.5), "order"),  # type: ignore[arg-type]
    (lambda: t.BlankRectangle(2.5, 0, 1), "rectangle_size"),  # type: ignore[arg-type]
    (lambda: t.ChannelMisalignment(shift_zyx=(0.5, 0, 0), rad_or_deg="deg"), "whole voxels"),  # type: ignore[arg-type]
    (lambda: t.CoarseShuffle(1.5, 3), "holes"),  # type: ignore[arg-type]
    (lambda: t.CoarseDropout(1, 2, fill_value=lambda: 1.0), "fill_value"),  # type: ignore[arg-type]
    (lambda: t.Ghosting(2.5), "num_ghosts"),  # type: ignore[arg-type]
    *((lambda bad=bad: t.HistogramShift(bad), "num_control_points") for bad in (2.5, "3")),
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
    (t.Anisotropy((2,)), {}, ValueError, "axes"),
    (t.Anisotropy(downsampling=lambda: 0.5), {}, ValueError, "downsampling"),
    (t.BlankRectangle(5, 0, 1), {}, ValueError, r"\[5, 5\] voxels .* \[4, 5\]"),
    (t.BlankRectangle((2, 2, 2), 0, 1), {}, ValueError, "for 3 axes, but the image has 2"),
    (t.ChannelMisalignment([2], rad_or_deg="deg"), {}, IndexError, "channel 2"),
    (t.ChannelMisalignment([0, -2], rad_or_deg="deg"), {}, ValueError, "twice"),
    (t.ChannelMisalignment([0], rad_or_deg="deg", shift_zyx=(1,)), {}, ValueError, "shift_zyx has 1"),
    (t.CoarseShuffle(1, (3, 3, 3)), {}, ValueError, "for 3 axes, but the image has 2"),
    (t.CoarseShuffle(1, 5, None, 4), {}, ValueError, "spatial_size must not be greater than max_spatial_size"),
    (t.CoarseShuffle(1, -1, None, 4), {}, ValueError, "spatial_size must not be greater than max_spatial_size"),
    (t.LocalGamma(lambda: 0.0), {}, ValueError, "scale"),
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
