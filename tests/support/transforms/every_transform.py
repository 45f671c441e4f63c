"""One instance of every transform, which is always applied and reaches most of its code."""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from detaug import transforms as t
from detaug.transforms import bgv2

#: A function of the number of spatial axes that returns a new transform.
Make = Callable[[int], t.Transform]

#: Radians.
ANGLES = (-math.pi, math.pi)


def fixed(kind: Any, *arguments: Any, **options: Any) -> Make:
    """Return a function that makes a transform without regard to the number of axes."""

    def make(_: int) -> t.Transform:
        return kind(*arguments, **options)

    return make


def spatial(**options: object) -> Make:
    """Return a function that makes a spatial transform whose patch is smaller than the input."""

    def make(dims: int) -> t.Transform:
        defaults = {
            "p_rotation": 1,
            "rotation": ANGLES,
            "p_scaling": 1,
            "scaling": (0.7, 1.4),
            "random_crop": False,
        }
        return t.SpatialTransform((14, 12, 10)[:dims], 0, **{**defaults, **options})

    return make


def foreign(**arrays: Any) -> dict[str, Any]:
    """Draw from global generators and write into the input, as other libraries do."""
    arrays["image"] += random.random() + np.random.random()
    return arrays


def to_2d_and_back(dims: int) -> t.Transform:
    """Return a rotation of every slice; nothing is done to images that have no slices."""
    if dims != 3:
        return t.Compose([])
    rotation = t.SpatialTransform((12, 10), 0, False, p_rotation=1)
    return t.Compose([t.Convert3DTo2D(), rotation, t.Convert2DTo3D()])


def binary_operator(_: int) -> t.Transform:
    to_channels = t.MoveSegAsOneHotToData(1, (1, 2), True)
    operator = t.ApplyRandomBinaryOperator((-2, -1), strel_size=(1, 3), p_per_label=1)
    return t.Compose([to_channels, operator])


def blank_rectangle(dims: int) -> t.Transform:
    return t.BlankRectangle([[2, 6]] * dims, (-1.0, 1.0), (2, 5))


def center_crop(dims: int) -> t.Transform:
    return t.CenterCrop((20, 8, 15)[:dims])


def contrast(_: int) -> t.Transform:
    return t.Contrast(t.BGContrast((0.5, 2)), True, False)


def gamma(_: int) -> t.Transform:
    return t.Gamma(t.BGContrast((0.7, 1.5)), 0.5, False, 1, 1)


def mirror(dims: int) -> t.Transform:
    return t.Mirror(tuple(range(dims)))


def motion(dims: int) -> t.Transform:
    return t.Motion(translation=(-2, 2), axes=range(dims), synchronize_channels=False)


def one_of(_: int) -> t.Transform:
    return t.OneOf([t.InvertImage(1), t.GaussianNoise(0.1), t.Mirror((0, 1))])


def random_apply(_: int) -> t.Transform:
    return t.RandomApply(t.GaussianNoise(0.1), 0.5)


def random_crop(dims: int) -> t.Transform:
    return t.RandomCrop((20, 8, 15)[:dims])


def remove_components(_: int) -> t.Transform:
    to_channels = t.MoveSegAsOneHotToData(1, (1, 2), True)
    removal = t.RemoveRandomConnectedComponentFromOneHotEncoding((-2, -1), 0.5, 0.9, 1)
    return t.Compose([to_channels, removal])


def rot90(dims: int) -> t.Transform:
    return t.Rot90((1, 3), (1, 2, 3), set(range(dims)))


def timed_compose(_: int) -> t.Transform:
    return bgv2.TimedComposeTransforms([t.InvertImage(1), t.GaussianNoise(0.1)])


def public_transforms() -> set[str]:
    """Return the names of all public transforms that change something."""
    names = set()
    for name in t.__all__:
        value = getattr(t, name)
        is_transform = inspect.isclass(value) and issubclass(value, t.Transform)
        if is_transform and value.change is not t.Transform.change:
            names.add(value.__name__)
    return names


#: Name -> function that makes the transform.
EVERY: dict[str, Make] = {
    "Anisotropy": fixed(t.Anisotropy, downsampling=(1.5, 5), synchronize_channels=False),
    "Anisotropy, box": fixed(
        t.Anisotropy, downsampling=(1.5, 5), profile="box", synchronize_channels=False
    ),
    "ApplyRandomBinaryOperator": binary_operator,
    "BiasField": fixed(t.BiasField, synchronize_channels=False),
    "BiasField, Legendre": fixed(t.BiasField, (0, 0.5), 4, "legendre"),
    "BlankRectangle": blank_rectangle,
    "BrightnessAdditive": fixed(t.BrightnessAdditive, 0.1, 0.5, False),
    "BrightnessGradientAdditive": fixed(
        t.BrightnessGradientAdditive, (4, 9), (-0.5, 1.5), (1, 5), False
    ),
    "CenterCrop": center_crop,
    "Contrast": contrast,
    "Contrast, range not kept": fixed(t.Contrast, (0.5, 2), False, True),
    "Convert3DTo2D and back": to_2d_and_back,
    "ConvertSegmentationToRegions": fixed(t.ConvertSegmentationToRegions, [[1, 2], 2, [0]], 0),
    "CutOffOutliers": fixed(t.CutOffOutliers, (1, 5), (95, 99)),
    "DownsampleSegForDS": fixed(t.DownsampleSegForDS, [1, 0.5, 0.3]),
    "ForeignTransform": fixed(t.ForeignTransform, foreign),
    "Gamma": gamma,
    "Gamma, statistics not retained": fixed(t.Gamma, (0.7, 1.5), 0, True, 1, 0),
    "GaussianBlur": fixed(t.GaussianBlur, (0.5, 3)),
    "GaussianNoise": fixed(t.GaussianNoise, (0.1, 0.2)),
    "Ghosting": fixed(t.Ghosting, restore=(0, 0.5), synchronize_channels=False),
    "GibbsNoise": fixed(t.GibbsNoise, synchronize_channels=False),
    "InvertImage": fixed(t.InvertImage, 1),
    "LocalContrast": fixed(t.LocalContrast, (4, 9), same_for_all_channels=False),
    "LocalGamma": fixed(t.LocalGamma, (4, 9), same_for_all_channels=False),
    "LocalSmoothing": fixed(t.LocalSmoothing, (4, 9), same_for_all_channels=False),
    "MaskImage": fixed(t.MaskImage, [0, 1]),
    "MedianFilter": fixed(t.MedianFilter, (2, 6)),
    "Mirror": mirror,
    "Motion": motion,
    "MoveSegAsOneHotToData": fixed(t.MoveSegAsOneHotToData, 1, (1, 2), True),
    "MultiplicativeBrightness": fixed(t.MultiplicativeBrightness, (0.7, 1.3), False),
    "OneOf": one_of,
    "RandomApply": random_apply,
    "RandomCrop": random_crop,
    "RemoveLabel": fixed(t.RemoveLabel, -1, 0),
    "RemoveRandomConnectedComponentFromOneHotEncoding": remove_components,
    "RicianNoise": fixed(t.RicianNoise, (0.1, 0.2)),
    "Rot90": rot90,
    "Sharpening": fixed(t.Sharpening, (0.1, 1)),
    "Sharpening, clamped": fixed(t.Sharpening, (0.1, 1), p_clamp_intensities=1),
    "SimulateLowResolution": fixed(t.SimulateLowResolution, (0.3, 1), False, False, None),
    "SpatialTransform": spatial(),
    "SpatialTransform, at a random place": spatial(random_crop=True, p_rotation=0),
    "SpatialTransform, cubic": spatial(
        mode_image="bicubic", mode_seg="nearest", p_rot_per_axis=0.5
    ),
    "SpatialTransform, elastic": spatial(
        p_elastic_deform=1, elastic_deform_scale=(0.1, 0.3), elastic_deform_magnitude=(0.05, 0.2)
    ),
    "SpatialTransform, nearest": spatial(
        mode_image="nearest", mode_seg="nearest", padding_value_seg=-1
    ),
    "Spikes": fixed(t.Spikes, (1, 3), synchronize_channels=False),
    "TimedCompose": timed_compose,
    "TransposeAxes": fixed(t.TransposeAxes, {0, 1}),
}
