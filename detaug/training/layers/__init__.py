"""Layers, losses and functions that compute the same bytes every time, under PyTorch's own names and signatures.

`make_deterministic` swaps the layers into a model; `deterministic_functions` redirects calls of PyTorch's functions. What
is not here either does not vary in PyTorch or is handled by its deterministic mode.
"""

from __future__ import annotations

from detaug.training.layers.losses import cross_entropy, nll_loss
from detaug.training.layers.padding import pad
from detaug.training.layers.pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, avg_pool3d
from detaug.training.layers.redirection import (
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AvgPool3d,
    CrossEntropyLoss,
    NLLLoss,
    ReflectionPad1d,
    ReflectionPad2d,
    ReflectionPad3d,
    Upsample,
    deterministic_functions,
)
from detaug.training.layers.swapping import SwapReport, make_deterministic, swap_layers
from detaug.training.layers.upsampling import interpolate

__all__ = [
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool3d",
    "CrossEntropyLoss",
    "NLLLoss",
    "ReflectionPad1d",
    "ReflectionPad2d",
    "ReflectionPad3d",
    "SwapReport",
    "Upsample",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool3d",
    "cross_entropy",
    "deterministic_functions",
    "interpolate",
    "make_deterministic",
    "nll_loss",
    "pad",
    "swap_layers",
]
