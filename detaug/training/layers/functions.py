"""Deterministic functions in place of PyTorch's, wherever a block of code calls them."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from detaug.training.layers import losses, padding, pooling, scattering, upsampling


@contextlib.contextmanager
def deterministic_functions() -> Iterator[None]:
    """Within the block (or the function it decorates), calls of PyTorch's functions go to this package's.

    That reaches what `make_deterministic` cannot: a ``forward`` that calls ``F.interpolate`` itself. Redirected are
    cross_entropy, nll_loss, avg_pool1d/2d/3d, adaptive_avg_pool1d/2d/3d, interpolate and upsample, pad (reflect and
    replicate), and index_add, scatter_add, scatter_reduce (sum, mean) and index_put (accumulate) as functions, methods
    and in-place methods. The backward pass may run outside the block. With an ``out=`` argument PyTorch's own is
    called.

    The block holds for the thread that enters it. A forward pass that torch.utils.checkpoint repeats during the
    backward pass is therefore redirected only if the block is inside the function that is checkpointed.
    """
    with _Redirection():
        yield


class _Redirection(TorchFunctionMode):
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        # PyTorch takes the mode off while this runs, so the replacements reach PyTorch's functions.
        kwargs = kwargs or {}
        replacement = _replacements().get(func)
        if replacement is None or kwargs.get("out") is not None:
            return func(*args, **kwargs)
        return replacement(*args, **{name: value for name, value in kwargs.items() if name != "out"})


def _index_add_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.copy_(scattering.index_add(tensor, *args, **kwargs))


def _scatter_add_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.copy_(scattering.scatter_add(tensor, *args, **kwargs))


def _scatter_reduce_(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.copy_(scattering.scatter_reduce(tensor, *args, **kwargs))


def _index_put_(tensor: torch.Tensor, indices: Any, values: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    if not accumulate:  # assignment: must not take a copy of the tensor
        return tensor.index_put_(indices, values)
    return tensor.copy_(scattering.index_put(tensor, indices, values, accumulate))


@functools.cache
def _replacements() -> dict[Any, Callable[..., Any]]:
    """PyTorch's function → this package's."""
    tensor = torch.Tensor
    return {
        functional.cross_entropy: losses.cross_entropy,
        functional.nll_loss: losses.nll_loss,
        functional.avg_pool1d: pooling.avg_pool1d,
        functional.avg_pool2d: pooling.avg_pool2d,
        functional.avg_pool3d: pooling.avg_pool3d,
        functional.adaptive_avg_pool1d: pooling.adaptive_avg_pool1d,
        functional.adaptive_avg_pool2d: pooling.adaptive_avg_pool2d,
        functional.adaptive_avg_pool3d: pooling.adaptive_avg_pool3d,
        functional.interpolate: upsampling.interpolate,
        functional.upsample: upsampling.upsample,
        functional.upsample_nearest: upsampling.upsample_nearest,
        functional.upsample_bilinear: upsampling.upsample_bilinear,
        functional.pad: padding.pad,
        torch.index_add: scattering.index_add,
        tensor.index_add: scattering.index_add,
        tensor.index_add_: _index_add_,
        torch.scatter_add: scattering.scatter_add,
        tensor.scatter_add: scattering.scatter_add,
        tensor.scatter_add_: _scatter_add_,
        torch.scatter_reduce: scattering.scatter_reduce,
        tensor.scatter_reduce: scattering.scatter_reduce,
        tensor.scatter_reduce_: _scatter_reduce_,
        torch.index_put: scattering.index_put,
        tensor.index_put: scattering.index_put,
        torch.index_put_: _index_put_,
        tensor.index_put_: _index_put_,
    }


def redirected_names() -> frozenset[str]:
    """The names under which code calls what is redirected (``pad`` excepted: most calls of it are constant)."""
    return frozenset(function.__name__ for function in _replacements()) - {"pad"}
