"""Augmentation of 2-D and 3-D images, drawn from a Generator, with the same bytes on every CPU.

Classes have batchgeneratorsv2's names without "Transform"; `detaug.transforms.bgv2` has its full
names.
"""

from __future__ import annotations

from detaug.transforms.axes import Mirror, Rot90, TransposeAxes
from detaug.transforms.binary_operators import ApplyRandomBinaryOperator
from detaug.transforms.blur import GaussianBlur
from detaug.transforms.brightness import BrightnessAdditive, MultiplicativeBrightness
from detaug.transforms.building.base import ImageTransform, Transform
from detaug.transforms.channels import MoveSegAsOneHotToData
from detaug.transforms.components import RemoveRandomConnectedComponentFromOneHotEncoding
from detaug.transforms.compose import Compose, OneOf, RandomApply
from detaug.transforms.contrast import BGContrast, Contrast, InvertImage
from detaug.transforms.cropping import CenterCrop, RandomCrop
from detaug.transforms.filters import MedianFilter, Sharpening
from detaug.transforms.foreign import ForeignTransform
from detaug.transforms.gamma import Gamma
from detaug.transforms.labels import (
    ConvertSegmentationToRegions,
    DownsampleSegForDS,
    MaskImage,
    RemoveLabel,
)
from detaug.transforms.local import (
    BrightnessGradientAdditive,
    LocalContrast,
    LocalGamma,
    LocalSmoothing,
)
from detaug.transforms.low_resolution import SimulateLowResolution
from detaug.transforms.mri.anisotropy import Anisotropy
from detaug.transforms.mri.bias_field import BiasField
from detaug.transforms.mri.k_space import Ghosting, GibbsNoise, Spikes
from detaug.transforms.mri.motion import Motion
from detaug.transforms.noise import GaussianNoise, RicianNoise
from detaug.transforms.outliers import CutOffOutliers
from detaug.transforms.planes import Convert2DTo3D, Convert3DTo2D
from detaug.transforms.rectangles import BlankRectangle
from detaug.transforms.spatial import SpatialTransform

__all__ = [
    "Anisotropy",
    "ApplyRandomBinaryOperator",
    "BGContrast",
    "BiasField",
    "BlankRectangle",
    "BrightnessAdditive",
    "BrightnessGradientAdditive",
    "CenterCrop",
    "Compose",
    "Contrast",
    "Convert2DTo3D",
    "Convert3DTo2D",
    "ConvertSegmentationToRegions",
    "CutOffOutliers",
    "DownsampleSegForDS",
    "ForeignTransform",
    "Gamma",
    "GaussianBlur",
    "GaussianNoise",
    "Ghosting",
    "GibbsNoise",
    "ImageTransform",
    "InvertImage",
    "LocalContrast",
    "LocalGamma",
    "LocalSmoothing",
    "MaskImage",
    "MedianFilter",
    "Mirror",
    "Motion",
    "MoveSegAsOneHotToData",
    "MultiplicativeBrightness",
    "OneOf",
    "RandomApply",
    "RandomCrop",
    "RemoveLabel",
    "RemoveRandomConnectedComponentFromOneHotEncoding",
    "RicianNoise",
    "Rot90",
    "Sharpening",
    "SimulateLowResolution",
    "SpatialTransform",
    "Spikes",
    "Transform",
    "TransposeAxes",
]
