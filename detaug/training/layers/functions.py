"""Deterministic functions in place of PyTorch's, wherever a block of code calls them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from torch.nn import functional
from torch.overrides import TorchFunctionMode

from detaug.training.layers import losses, padding, pooling, upsampling


@contextlib.contextmanager
def deterministic_functions() -> Iterator[None]:
    """Within the block (or the function it decorates), calls of PyTorch's functions go to this package's.

    That reaches what `make_deterministic` cannot: a ``forward`` that calls ``F.interpolate`` itself. Redirected are
    cross_entropy, nll_loss, avg_pool3d, adaptive_avg_pool1d/2d/3d, interpolate (which upsample and upsample_bilinear
    call), and pad (reflect). The backward pass may run outside the block.

    The block holds for the thread that enters it. A forward pass that torch.utils.checkpoint repeats during the backward
    pass is redirected only if the block is inside the checkpointed function.
    """
    with Redirection():
        yield


class Redirection(TorchFunctionMode):
    """The block itself."""

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # PyTorch takes the mode off while this runs, so the replacements reach PyTorch's functions.
        return _REPLACEMENTS.get(func, func)(*args, **(kwargs or {}))


_REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    functional.cross_entropy: losses.cross_entropy,
    functional.nll_loss: losses.nll_loss,
    functional.avg_pool3d: pooling.avg_pool3d,
    functional.adaptive_avg_pool1d: pooling.adaptive_avg_pool1d,
    functional.adaptive_avg_pool2d: pooling.adaptive_avg_pool2d,
    functional.adaptive_avg_pool3d: pooling.adaptive_avg_pool3d,
    functional.interpolate: upsampling.interpolate,
    functional.pad: padding.pad,
}
