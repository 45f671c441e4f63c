"""Augmentation of 2-D and 3-D images: drawn from a Generator, the same bytes on every CPU.

Classes have batchgeneratorsv2's names without "Transform"; those with it are there as well (`detaug.transforms.names`).
"""

from __future__ import annotations

from detaug.transforms.anisotropy import Anisotropy
from detaug.transforms.axes import Mirror, Rot90, TransposeAxes
from detaug.transforms.bias_field import BiasField
from detaug.transforms.binary_operators import ApplyRandomBinaryOperator
from detaug.transforms.blur import GaussianBlur
from detaug.transforms.brightness import BrightnessAdditive, MultiplicativeBrightness
from detaug.transforms.building.base import ImageTransform, Transform
from detaug.transforms.channel_misalignment import ChannelMisalignment
from detaug.transforms.channels import MoveChannels, MoveSegAsOneHotToData
from detaug.transforms.coarse import CoarseDropout, CoarseShuffle
from detaug.transforms.components import RemoveRandomConnectedComponentFromOneHotEncoding
from detaug.transforms.compose import Compose, OneOf, RandomApply, TimedCompose
from detaug.transforms.contrast import BGContrast, Contrast, InvertImage
from detaug.transforms.cropping import CenterCrop, RandomCrop, crop_array
from detaug.transforms.filters import MedianFilter, Sharpening
from detaug.transforms.foreign import ForeignTransform
from detaug.transforms.gamma import Gamma
from detaug.transforms.histogram_shift import HistogramShift
from detaug.transforms.k_space import Ghosting, GibbsNoise, Spikes
from detaug.transforms.labels import ConvertSegmentationToRegions, DownsampleSegForDS, MaskImage, RemoveLabel
from detaug.transforms.local import BrightnessGradientAdditive, LocalContrast, LocalGamma, LocalSmoothing
from detaug.transforms.low_resolution import SimulateLowResolution
from detaug.transforms.motion import Motion
from detaug.transforms.names import (
    ApplyRandomBinaryOperatorTransform,
    BasicTransform,
    BlankRectangleTransform,
    BrightnessAdditiveTransform,
    BrightnessGradientAdditiveTransform,
    ChannelMisalignmentTransform,
    ComposeTransforms,
    ContrastTransform,
    Convert2DTo3DTransform,
    Convert3DTo2DTransform,
    ConvertSegmentationToRegionsTransform,
    CutOffOutliersTransform,
    DownsampleSegForDSTransform,
    GammaTransform,
    GaussianBlurTransform,
    GaussianNoiseTransform,
    ImageOnlyTransform,
    InvertImageTransform,
    LocalContrastTransform,
    LocalGammaTransform,
    LocalSmoothingTransform,
    MaskImageTransform,
    MedianFilterTransform,
    MirrorTransform,
    MoveChannelsTransform,
    MoveSegAsOneHotToDataTransform,
    MultiplicativeBrightnessTransform,
    OneOfTransform,
    RandomTransform,
    RemoveLabelTansform,
    RemoveLabelTransform,
    RemoveRandomConnectedComponentFromOneHotEncodingTransform,
    RicianNoiseTransform,
    Rot90Transform,
    SegOnlyTransform,
    SharpeningTransform,
    SimulateLowResolutionTransform,
    Spatial,
    TimedComposeTransforms,
    TransposeAxesTransform,
)
from detaug.transforms.noise import GaussianNoise, RicianNoise
from detaug.transforms.outliers import CutOffOutliers
from detaug.transforms.planes import Convert2DTo3D, Convert3DTo2D
from detaug.transforms.rectangles import BlankRectangle
from detaug.transforms.spatial import SpatialTransform

__all__ = [
    "Anisotropy",
    "ApplyRandomBinaryOperator",
    "ApplyRandomBinaryOperatorTransform",
    "BGContrast",
    "BasicTransform",
    "BiasField",
    "BlankRectangle",
    "BlankRectangleTransform",
    "BrightnessAdditive",
    "BrightnessAdditiveTransform",
    "BrightnessGradientAdditive",
    "BrightnessGradientAdditiveTransform",
    "CenterCrop",
    "ChannelMisalignment",
    "ChannelMisalignmentTransform",
    "CoarseDropout",
    "CoarseShuffle",
    "Compose",
    "ComposeTransforms",
    "Contrast",
    "ContrastTransform",
    "Convert2DTo3D",
    "Convert2DTo3DTransform",
    "Convert3DTo2D",
    "Convert3DTo2DTransform",
    "ConvertSegmentationToRegions",
    "ConvertSegmentationToRegionsTransform",
    "CutOffOutliers",
    "CutOffOutliersTransform",
    "DownsampleSegForDS",
    "DownsampleSegForDSTransform",
    "ForeignTransform",
    "Gamma",
    "GammaTransform",
    "GaussianBlur",
    "GaussianBlurTransform",
    "GaussianNoise",
    "GaussianNoiseTransform",
    "Ghosting",
    "GibbsNoise",
    "HistogramShift",
    "ImageOnlyTransform",
    "ImageTransform",
    "InvertImage",
    "InvertImageTransform",
    "LocalContrast",
    "LocalContrastTransform",
    "LocalGamma",
    "LocalGammaTransform",
    "LocalSmoothing",
    "LocalSmoothingTransform",
    "MaskImage",
    "MaskImageTransform",
    "MedianFilter",
    "MedianFilterTransform",
    "Mirror",
    "MirrorTransform",
    "Motion",
    "MoveChannels",
    "MoveChannelsTransform",
    "MoveSegAsOneHotToData",
    "MoveSegAsOneHotToDataTransform",
    "MultiplicativeBrightness",
    "MultiplicativeBrightnessTransform",
    "OneOf",
    "OneOfTransform",
    "RandomApply",
    "RandomCrop",
    "RandomTransform",
    "RemoveLabel",
    "RemoveLabelTansform",
    "RemoveLabelTransform",
    "RemoveRandomConnectedComponentFromOneHotEncoding",
    "RemoveRandomConnectedComponentFromOneHotEncodingTransform",
    "RicianNoise",
    "RicianNoiseTransform",
    "Rot90",
    "Rot90Transform",
    "SegOnlyTransform",
    "Sharpening",
    "SharpeningTransform",
    "SimulateLowResolution",
    "SimulateLowResolutionTransform",
    "Spatial",
    "SpatialTransform",
    "Spikes",
    "TimedCompose",
    "TimedComposeTransforms",
    "Transform",
    "TransposeAxes",
    "TransposeAxesTransform",
    "crop_array",
]
