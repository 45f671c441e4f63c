"""PyTorch's functions redirected to this package's, in a block of code or in the ``forward`` of one of PyTorch's modules."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from detaug.training.layers import losses, padding, pooling, upsampling

_POOLING = (pooling.avg_pool3d, pooling.adaptive_avg_pool1d, pooling.adaptive_avg_pool2d, pooling.adaptive_avg_pool3d)
_OTHERS = (losses.cross_entropy, losses.nll_loss, upsampling.interpolate, padding.pad)
#: PyTorch's function → this package's, under the same name.
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    getattr(functional, each.__name__): each for each in (*_POOLING, *_OTHERS)
}


@contextlib.contextmanager
def deterministic_functions() -> Iterator[None]:
    """Within the block (or the function it decorates), calls of PyTorch's functions go to this package's.

    It reaches what `make_deterministic` cannot: a ``forward`` that calls ``F.interpolate`` itself. Redirected are
    cross_entropy, nll_loss, avg_pool3d, adaptive_avg_pool1d/2d/3d, interpolate (which upsample and upsample_bilinear
    call), and pad (reflect). The backward pass may run outside the block.

    The block holds for the thread that enters it. A forward pass that torch.utils.checkpoint repeats during the backward
    pass is redirected only if the block is inside the checkpointed function.
    """
    with Redirection():
        yield


class Redirection(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # PyTorch takes the mode off while this runs, so the replacements reach PyTorch's functions.
        return _FUNCTIONS.get(func, func)(*args, **(kwargs or {}))


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


#: PyTorch's class → this package's.
MODULES: Mapping[type, type] = {kind.__bases__[1]: kind for kind in Redirected.__subclasses__()}
