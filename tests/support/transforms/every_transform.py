"""One of every transform, always on, with ranges wide enough to reach most of its code."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import numpy as np

from detaug import transforms as t
from detaug.transforms import bgv2

Make = Callable[[int], t.Transform]

ANGLES = (-math.pi, math.pi)


def spatial(**options: object) -> Make:
    """A spatial transform to a patch smaller than what it is given."""

    def make(dims: int) -> t.Transform:
        always = {
            "p_rotation": 1,
            "rotation": ANGLES,
            "p_scaling": 1,
            "scaling": (0.7, 1.4),
            "random_crop": False,
        }
        return t.SpatialTransform((14, 12, 10)[:dims], 0, **{**always, **options})

    return make


def foreign(**arrays: Any) -> dict[str, Any]:
    """As a transform of another library: it draws from the global generators, and writes into what
    it is given.
    """
    arrays["image"] += random.random() + np.random.random()
    return arrays


# name -> a function of the number of spatial axes
EVERY: dict[str, Make] = {
    "Anisotropy": lambda dims: t.Anisotropy(downsampling=(1.5, 5), synchronize_channels=False),
    "Anisotropy, box": lambda dims: t.Anisotropy(
        downsampling=(1.5, 5), profile="box", synchronize_channels=False
    ),
    "ApplyRandomBinaryOperator": lambda dims: t.Compose(
        [
            t.MoveSegAsOneHotToData(1, (1, 2), True),
            t.ApplyRandomBinaryOperator((-2, -1), strel_size=(1, 3), p_per_label=1),
        ]
    ),
    "BiasField": lambda dims: t.BiasField(synchronize_channels=False),
    "BiasField, Legendre": lambda dims: t.BiasField((0, 0.5), 4, "legendre"),
    "BlankRectangle": lambda dims: t.BlankRectangle([[2, 6]] * dims, (-1.0, 1.0), (2, 5)),
    "BrightnessAdditive": lambda dims: t.BrightnessAdditive(0.1, 0.5, False),
    "BrightnessGradientAdditive": lambda dims: t.BrightnessGradientAdditive(
        (4, 9), (-0.5, 1.5), (1, 5), False
    ),
    "CenterCrop": lambda dims: t.CenterCrop((20, 8, 15)[:dims]),
    "CoarseDropout": lambda dims: t.CoarseDropout(2, 3, max_holes=5, max_spatial_size=8),
    "CoarseDropout, outside": lambda dims: t.CoarseDropout(
        2, 3, False, (-1, 1), max_spatial_size=8
    ),
    "Contrast": lambda dims: t.Contrast(t.BGContrast((0.5, 2)), True, False),
    "Contrast, range not kept": lambda dims: t.Contrast((0.5, 2), False, True),
    "Convert3DTo2D and back": lambda dims: (
        t.Compose(
            [
                t.Convert3DTo2D(),
                t.SpatialTransform((12, 10), 0, False, p_rotation=1),
                t.Convert2DTo3D(),
            ]
        )
        if dims == 3
        else t.Compose([])
    ),
    "ConvertSegmentationToRegions": lambda dims: t.ConvertSegmentationToRegions(
        [[1, 2], 2, [0]], 0
    ),
    "CutOffOutliers": lambda dims: t.CutOffOutliers((1, 5), (95, 99)),
    "DownsampleSegForDS": lambda dims: t.DownsampleSegForDS([1, 0.5, 0.3]),
    "ForeignTransform": lambda dims: t.ForeignTransform(foreign),
    "Gamma": lambda dims: t.Gamma(t.BGContrast((0.7, 1.5)), 0.5, False, 1, 1),
    "Gamma, statistics not retained": lambda dims: t.Gamma((0.7, 1.5), 0, True, 1, 0),
    "GaussianBlur": lambda dims: t.GaussianBlur((0.5, 3)),
    "GaussianNoise": lambda dims: t.GaussianNoise((0.1, 0.2)),
    "HistogramShift": lambda dims: t.HistogramShift((3, 9)),
    "HistogramShift, each channel": lambda dims: t.HistogramShift((3, 9), False),
    "Ghosting": lambda dims: t.Ghosting(restore=(0, 0.5), synchronize_channels=False),
    "GibbsNoise": lambda dims: t.GibbsNoise(synchronize_channels=False),
    "InvertImage": lambda dims: t.InvertImage(1),
    "LocalContrast": lambda dims: t.LocalContrast((4, 9), same_for_all_channels=False),
    "LocalGamma": lambda dims: t.LocalGamma((4, 9), same_for_all_channels=False),
    "LocalSmoothing": lambda dims: t.LocalSmoothing((4, 9), same_for_all_channels=False),
    "MaskImage": lambda dims: t.MaskImage([0, 1]),
    "MedianFilter": lambda dims: t.MedianFilter((2, 6)),
    "Mirror": lambda dims: t.Mirror(tuple(range(dims))),
    "Motion": lambda dims: t.Motion(
        translation=(-2, 2), axes=range(dims), synchronize_channels=False
    ),
    "MoveSegAsOneHotToData": lambda dims: t.MoveSegAsOneHotToData(1, (1, 2), True),
    "MultiplicativeBrightness": lambda dims: t.MultiplicativeBrightness((0.7, 1.3), False),
    "OneOf": lambda dims: t.OneOf([t.InvertImage(1), t.GaussianNoise(0.1), t.Mirror((0, 1))]),
    "RandomApply": lambda dims: t.RandomApply(t.GaussianNoise(0.1), 0.5),
    "RandomCrop": lambda dims: t.RandomCrop((20, 8, 15)[:dims]),
    "RemoveLabel": lambda dims: t.RemoveLabel(-1, 0),
    "RemoveRandomConnectedComponentFromOneHotEncoding": lambda dims: t.Compose(
        [
            t.MoveSegAsOneHotToData(1, (1, 2), True),
            t.RemoveRandomConnectedComponentFromOneHotEncoding((-2, -1), 0.5, 0.9, 1),
        ]
    ),
    "RicianNoise": lambda dims: t.RicianNoise((0.1, 0.2)),
    "Rot90": lambda dims: t.Rot90((1, 3), (1, 2, 3), set(range(dims))),
    "Sharpening": lambda dims: t.Sharpening((0.1, 1)),
    "Sharpening, clamped": lambda dims: t.Sharpening((0.1, 1), p_clamp_intensities=1),
    "SimulateLowResolution": lambda dims: t.SimulateLowResolution((0.3, 1), False, False, None),
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
    "Spikes": lambda dims: t.Spikes((1, 3), synchronize_channels=False),
    "TimedCompose": lambda dims: bgv2.TimedComposeTransforms(
        [t.InvertImage(1), t.GaussianNoise(0.1)]
    ),
    "TransposeAxes": lambda dims: t.TransposeAxes({0, 1}),
}
