"""batchgeneratorsv2's names for the transforms: code written for it needs other imports only.

`RemoveLabelTansform` is spelled as it is there. `docs/transforms.md` has the table.
"""

from __future__ import annotations

from detaug import transforms as t

BasicTransform = t.Transform
ImageOnlyTransform = t.ImageTransform
SegOnlyTransform = t.Transform

ComposeTransforms = t.Compose
TimedComposeTransforms = t.Compose
RandomTransform = t.RandomApply
OneOfTransform = t.OneOf

ApplyRandomBinaryOperatorTransform = t.ApplyRandomBinaryOperator
BlankRectangleTransform = t.BlankRectangle
BrightnessAdditiveTransform = t.BrightnessAdditive
BrightnessGradientAdditiveTransform = t.BrightnessGradientAdditive
ContrastTransform = t.Contrast
Convert2DTo3DTransform = t.Convert2DTo3D
Convert3DTo2DTransform = t.Convert3DTo2D
ConvertSegmentationToRegionsTransform = t.ConvertSegmentationToRegions
CutOffOutliersTransform = t.CutOffOutliers
DownsampleSegForDSTransform = t.DownsampleSegForDS
GammaTransform = t.Gamma
GaussianBlurTransform = t.GaussianBlur
GaussianNoiseTransform = t.GaussianNoise
InvertImageTransform = t.InvertImage
LocalContrastTransform = t.LocalContrast
LocalGammaTransform = t.LocalGamma
LocalSmoothingTransform = t.LocalSmoothing
MaskImageTransform = t.MaskImage
MedianFilterTransform = t.MedianFilter
MirrorTransform = t.Mirror
MoveSegAsOneHotToDataTransform = t.MoveSegAsOneHotToData
MultiplicativeBrightnessTransform = t.MultiplicativeBrightness
RemoveLabelTansform = t.RemoveLabel
RemoveLabelTransform = t.RemoveLabel
RemoveRandomConnectedComponentFromOneHotEncodingTransform = (
    t.RemoveRandomConnectedComponentFromOneHotEncoding
)
RicianNoiseTransform = t.RicianNoise
Rot90Transform = t.Rot90
SharpeningTransform = t.Sharpening
SimulateLowResolutionTransform = t.SimulateLowResolution
SpatialTransform = t.SpatialTransform
TransposeAxesTransform = t.TransposeAxes
BGContrast = t.BGContrast
