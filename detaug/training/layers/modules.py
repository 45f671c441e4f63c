"""PyTorch's layers and losses, whose ``forward`` calls this package's functions in place of PyTorch's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn

from detaug.training.layers.functions import Redirection


class Redirected:
    """Before a module's class, in its method resolution order: what ``forward`` calls is redirected."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with Redirection():
            return super().forward(*args, **kwargs)  # type: ignore[misc]


class CrossEntropyLoss(Redirected, nn.CrossEntropyLoss):
    """`torch.nn.CrossEntropyLoss`, deterministic: see `cross_entropy`."""


class NLLLoss(Redirected, nn.NLLLoss):
    """`torch.nn.NLLLoss`, deterministic: see `nll_loss`."""


class AvgPool3d(Redirected, nn.AvgPool3d):
    """`torch.nn.AvgPool3d` with a deterministic gradient."""


class AdaptiveAvgPool1d(Redirected, nn.AdaptiveAvgPool1d):
    """`torch.nn.AdaptiveAvgPool1d` with a deterministic gradient."""


class AdaptiveAvgPool2d(Redirected, nn.AdaptiveAvgPool2d):
    """`torch.nn.AdaptiveAvgPool2d` with a deterministic gradient."""


class AdaptiveAvgPool3d(Redirected, nn.AdaptiveAvgPool3d):
    """`torch.nn.AdaptiveAvgPool3d` with a deterministic gradient."""


class Upsample(Redirected, nn.Upsample):
    """`torch.nn.Upsample`, in all its modes, with a deterministic gradient."""


class ReflectionPad1d(Redirected, nn.ReflectionPad1d):
    """`torch.nn.ReflectionPad1d` with a deterministic gradient."""


class ReflectionPad2d(Redirected, nn.ReflectionPad2d):
    """`torch.nn.ReflectionPad2d` with a deterministic gradient."""


class ReflectionPad3d(Redirected, nn.ReflectionPad3d):
    """`torch.nn.ReflectionPad3d` with a deterministic gradient."""


_LOSSES = (CrossEntropyLoss, NLLLoss)
_POOLING = (AvgPool3d, AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d)
_PADDING = (ReflectionPad1d, ReflectionPad2d, ReflectionPad3d)

#: PyTorch's class → this package's.
REPLACEMENTS: Mapping[type, type] = {kind.__bases__[1]: kind for kind in (*_LOSSES, *_POOLING, *_PADDING, Upsample)}
