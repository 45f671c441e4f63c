"""Layers, losses and functions that compute the same bytes every time, under PyTorch's own names and signatures.

`make_deterministic` swaps the layers into a model; `deterministic_functions` redirects calls of PyTorch's functions.
"""

from __future__ import annotations

from detaug.training.layers.functions import deterministic_functions
from detaug.training.layers.losses import CrossEntropyLoss, NLLLoss, cross_entropy, nll_loss
from detaug.training.layers.padding import (
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    ReplicationPad1d,
    ReplicationPad2d,
    ReplicationPad3d,
    pad,
)
from detaug.training.layers.pooling import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
)
from detaug.training.layers.scattering import index_add, index_put, scatter_add, scatter_reduce
from detaug.training.layers.swap_report import SwapReport
from detaug.training.layers.swapping import make_deterministic
from detaug.training.layers.upsampling import (
    Upsample,
    UpsamplingBilinear2d,
    UpsamplingNearest2d,
    interpolate,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "CrossEntropyLoss",
    "NLLLoss",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "ReplicationPad1d",
    "ReplicationPad2d",
    "ReplicationPad3d",
    "SwapReport",
    "Upsample",
    "UpsamplingBilinear2d",
    "UpsamplingNearest2d",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "cross_entropy",
    "deterministic_functions",
    "index_add",
    "index_put",
    "interpolate",
    "make_deterministic",
    "nll_loss",
    "pad",
    "scatter_add",
    "scatter_reduce",
    "upsample",
    "upsample_bilinear",
    "upsample_nearest",
]
