"""batchgeneratorsv2's names for the transforms, so that code written for it needs other imports only.

`RemoveLabelTansform` is spelled like that there, too. `docs/transforms.md` has the table.
"""

from __future__ import annotations

from detaug.transforms.axes import Mirror, Rot90, TransposeAxes
from detaug.transforms.binary_operators import ApplyRandomBinaryOperator
from detaug.transforms.blur import GaussianBlur
from detaug.transforms.brightness import BrightnessAdditive, MultiplicativeBrightness
from detaug.transforms.building.base import ImageTransform, Transform
from detaug.transforms.channels import MoveChannels, MoveSegAsOneHotToData
from detaug.transforms.components import RemoveRandomConnectedComponentFromOneHotEncoding
from detaug.transforms.compose import Compose, OneOf, RandomApply, TimedCompose
from detaug.transforms.contrast import BGContrast as BGContrast
from detaug.transforms.contrast import Contrast, InvertImage
from detaug.transforms.filters import MedianFilter, Sharpening
from detaug.transforms.gamma import Gamma
from detaug.transforms.labels import ConvertSegmentationToRegions, DownsampleSegForDS, MaskImage, RemoveLabel
from detaug.transforms.local import BrightnessGradientAdditive, LocalContrast, LocalGamma, LocalSmoothing
from detaug.transforms.low_resolution import SimulateLowResolution
from detaug.transforms.mri.channel_misalignment import ChannelMisalignment
from detaug.transforms.noise import GaussianNoise, RicianNoise
from detaug.transforms.outliers import CutOffOutliers
from detaug.transforms.planes import Convert2DTo3D, Convert3DTo2D
from detaug.transforms.rectangles import BlankRectangle
from detaug.transforms.spatial import SpatialTransform

BasicTransform = Transform
ImageOnlyTransform = ImageTransform
SegOnlyTransform = Transform

ComposeTransforms = Compose
TimedComposeTransforms = TimedCompose
RandomTransform = RandomApply
OneOfTransform = OneOf

ApplyRandomBinaryOperatorTransform = ApplyRandomBinaryOperator
BlankRectangleTransform = BlankRectangle
BrightnessAdditiveTransform = BrightnessAdditive
BrightnessGradientAdditiveTransform = BrightnessGradientAdditive
ChannelMisalignmentTransform = ChannelMisalignment
ContrastTransform = Contrast
Convert2DTo3DTransform = Convert2DTo3D
Convert3DTo2DTransform = Convert3DTo2D
ConvertSegmentationToRegionsTransform = ConvertSegmentationToRegions
CutOffOutliersTransform = CutOffOutliers
DownsampleSegForDSTransform = DownsampleSegForDS
GammaTransform = Gamma
GaussianBlurTransform = GaussianBlur
GaussianNoiseTransform = GaussianNoise
InvertImageTransform = InvertImage
LocalContrastTransform = LocalContrast
LocalGammaTransform = LocalGamma
LocalSmoothingTransform = LocalSmoothing
MaskImageTransform = MaskImage
MedianFilterTransform = MedianFilter
MirrorTransform = Mirror
MoveChannelsTransform = MoveChannels
MoveSegAsOneHotToDataTransform = MoveSegAsOneHotToData
MultiplicativeBrightnessTransform = MultiplicativeBrightness
RemoveLabelTansform = RemoveLabel
RemoveLabelTransform = RemoveLabel
RemoveRandomConnectedComponentFromOneHotEncodingTransform = RemoveRandomConnectedComponentFromOneHotEncoding
RicianNoiseTransform = RicianNoise
Rot90Transform = Rot90
SharpeningTransform = Sharpening
SimulateLowResolutionTransform = SimulateLowResolution
Spatial = SpatialTransform
TransposeAxesTransform = TransposeAxes
