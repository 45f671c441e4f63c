"""Which operations PyTorch calls non-deterministic, what its deterministic mode does about each, and what to use instead.

From the lists in the documentation of `torch.use_deterministic_algorithms` (release 2.15) for CPU and CUDA tensors, and
what users of nnU-Net meet beyond them: attention's backward pass, ties in top-k, cuDNN's choice of algorithm, cuBLAS's
workspace. What holds on MPS only is left out. Earlier releases raise for more (max_pool3d, kthvalue, cumsum, the
backward passes of the replication pads); the advice is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

Status = Literal["raises", "handled in deterministic mode", "silent"]

RAISES: Status = "raises"
HANDLED: Status = "handled in deterministic mode"
SILENT: Status = "silent"


def _always(_: Any) -> bool:
    return True


@dataclass(frozen=True)
class NondeterministicOperation:
    """One operation, by every name under which a reader or a program meets it.

    Attributes:
        name: as PyTorch's documentation has it, e.g. ``"torch.nn.AvgPool3d"``.
        status: under ``torch.use_deterministic_algorithms(True)`` it ``"raises"``, is ``"handled in deterministic
            mode"`` (another algorithm is taken), or stays as it is, ``"silent"``.
        advice: what to use instead, or what to set.
        aten: names in ``torch.ops.aten``, without overload, by which a TorchDispatchMode sees it, forward or backward.
        modules: names of the classes in ``torch.nn`` that imply it.
        where: on what tensors, and when.
        called: whether a call with these arguments, by name, is meant.
        built: whether a module of one of these classes, as it was built, is meant.
    """

    name: str
    status: Status
    advice: str
    aten: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    where: str = "backward on CUDA"
    called: Callable[[Mapping[str, Any]], bool] = field(default=_always, repr=False, compare=False)
    built: Callable[[nn.Module], bool] = field(default=_always, repr=False, compare=False)


def operation_called(
    function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> NondeterministicOperation | None:
    """The row for one call that a TorchDispatchMode saw, or None where PyTorch calls it deterministic.

    Args:
        function: the ``torch._ops.OpOverload``.
        args, kwargs: as the mode received them.
    """
    rows = _BY_ATEN_NAME.get(aten_name(function))
    if not rows:
        return None
    names = [argument.name for argument in function._schema.arguments]
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    return next((row for row in rows if row.called(arguments)), None)


def operations_of_module(module: nn.Module) -> tuple[NondeterministicOperation, ...]:
    """The rows that a module of `torch.nn`, as it was built, implies by itself; its children are not looked at.

    A subclass counts as what it derives from. nn.Upsample with ``mode="nearest"`` or a loss with ``reduction="none"``
    imply nothing.
    """
    classes = {kind.__name__ for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.")}
    return tuple(row for row in OPERATIONS if classes.intersection(row.modules) and row.built(module))


def aten_name(function: Any) -> str:
    """``aten.nll_loss2d_forward.default`` → ``nll_loss2d_forward``; an empty string for other libraries' operators."""
    namespace, _, name = function._schema.name.partition("::")
    return name if namespace == "aten" else ""


def _floating(name: str) -> Callable[[Mapping[str, Any]], bool]:
    def is_floating(arguments: Mapping[str, Any]) -> bool:
        tensor = arguments.get(name)
        return isinstance(tensor, torch.Tensor) and (tensor.is_floating_point() or tensor.is_complex())

    return is_floating


def _truthy(name: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda arguments: bool(arguments.get(name))


def _falsy(name: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda arguments: not arguments.get(name)


def _given(name: str) -> Callable[[Mapping[str, Any]], bool]:
    return lambda arguments: arguments.get(name) is not None


def _reduced(arguments: Mapping[str, Any]) -> bool:
    return int(arguments.get("reduction", 1)) != 0  # at::Reduction: none 0, mean 1, sum 2


def _tensor_source(arguments: Mapping[str, Any]) -> bool:
    return isinstance(arguments.get("src"), torch.Tensor)


def _sparse(arguments: Mapping[str, Any]) -> bool:
    return any(isinstance(value, torch.Tensor) and value.is_sparse for value in arguments.values())


def _max_bag(arguments: Mapping[str, Any]) -> bool:
    return arguments.get("mode") == 2  # sum 0, mean 1, max 2


def _built_with(name: str, value: Any) -> Callable[[nn.Module], bool]:
    return lambda module: bool(getattr(module, name) == value)


_LAYERS = "detaug.training.layers"
_MODE_IS_ENOUGH = "nothing to replace: switch on deterministic_mode()"

OPERATIONS: tuple[NondeterministicOperation, ...] = (
    # ---- raise in deterministic mode -------------------------------------------------------------------------------
    NondeterministicOperation(
        "torch.nn.NLLLoss",
        RAISES,
        f"use {_LAYERS}.CrossEntropyLoss or NLLLoss, or reduction='none' and the mean over the valid voxels",
        aten=("nll_loss2d_forward", "nll_loss2d_backward"),
        modules=("NLLLoss", "NLLLoss2d", "CrossEntropyLoss"),
        where="forward and backward on CUDA, inputs with spatial axes, reduction 'mean' or 'sum'",
        called=_reduced,
        built=lambda module: bool(module.reduction != "none"),
    ),
    NondeterministicOperation(
        "torch.nn.AvgPool3d",
        RAISES,
        f"use {_LAYERS}.AvgPool3d",
        aten=("avg_pool3d_backward",),
        modules=("AvgPool3d",),
    ),
    NondeterministicOperation(
        "torch.nn.AdaptiveAvgPool2d",
        RAISES,
        f"use {_LAYERS}.AdaptiveAvgPool2d, or a mean over the axes where the output size is 1",
        aten=("_adaptive_avg_pool2d_backward",),
        modules=("AdaptiveAvgPool1d", "AdaptiveAvgPool2d"),
    ),
    NondeterministicOperation(
        "torch.nn.AdaptiveAvgPool3d",
        RAISES,
        f"use {_LAYERS}.AdaptiveAvgPool3d, or a mean over the axes where the output size is 1",
        aten=("_adaptive_avg_pool3d_backward", "adaptive_avg_pool3d_backward"),
        modules=("AdaptiveAvgPool3d",),
    ),
    NondeterministicOperation(
        "torch.nn.AdaptiveMaxPool2d",
        RAISES,
        "use nn.MaxPool2d with a fixed kernel and stride, or amax over the axes where the output size is 1",
        aten=("adaptive_max_pool2d_backward",),
        modules=("AdaptiveMaxPool1d", "AdaptiveMaxPool2d"),
    ),
    NondeterministicOperation(
        "torch.nn.AdaptiveMaxPool3d",
        RAISES,
        "use nn.MaxPool3d with a fixed kernel and stride, or amax over the axes where the output size is 1",
        aten=("adaptive_max_pool3d_backward",),
        modules=("AdaptiveMaxPool3d",),
    ),
    NondeterministicOperation(
        "torch.nn.FractionalMaxPool2d",
        RAISES,
        "use nn.MaxPool2d",
        aten=("fractional_max_pool2d_backward",),
        modules=("FractionalMaxPool2d",),
    ),
    NondeterministicOperation(
        "torch.nn.FractionalMaxPool3d",
        RAISES,
        "use nn.MaxPool3d",
        aten=("fractional_max_pool3d_backward",),
        modules=("FractionalMaxPool3d",),
    ),
    NondeterministicOperation(
        "torch.nn.MaxUnpool2d",
        RAISES,
        "use a transposed convolution, or nn.Upsample(mode='nearest')",
        aten=("max_unpool2d",),
        modules=("MaxUnpool1d", "MaxUnpool2d"),
        where="forward on CUDA",
    ),
    NondeterministicOperation(
        "torch.nn.MaxUnpool3d",
        RAISES,
        "use a transposed convolution, or nn.Upsample(mode='nearest')",
        aten=("max_unpool3d",),
        modules=("MaxUnpool3d",),
        where="forward on CUDA",
    ),
    NondeterministicOperation(
        "torch.nn.functional.interpolate",
        RAISES,
        f"use {_LAYERS}.Upsample or interpolate, a transposed convolution, or mode='nearest'",
        aten=("upsample_linear1d_backward", "upsample_bilinear2d_backward", "upsample_trilinear3d_backward"),
        modules=("Upsample", "UpsamplingBilinear2d"),
        where="backward on CUDA, modes linear, bilinear and trilinear",
        built=lambda module: "linear" in str(module.mode),
    ),
    NondeterministicOperation(
        "torch.nn.functional.interpolate (bicubic or antialias)",
        RAISES,
        f"use {_LAYERS}.interpolate with mode='bilinear' and no antialias, or a transposed convolution",
        aten=("upsample_bicubic2d_backward", "_upsample_bicubic2d_aa_backward", "_upsample_bilinear2d_aa_backward"),
        modules=("Upsample",),
        where="backward on CUDA, mode bicubic, or antialias=True",
        built=lambda module: "cubic" in str(module.mode),
    ),
    *(
        NondeterministicOperation(
            f"torch.nn.ReflectionPad{axes}d",
            RAISES,
            f"use {_LAYERS}.ReflectionPad{axes}d, or pad with zeros",
            aten=(f"reflection_pad{axes}d_backward",),
            modules=(f"ReflectionPad{axes}d",),
        )
        for axes in (1, 2, 3)
    ),
    NondeterministicOperation(
        "torch.nn.CTCLoss",
        RAISES,
        "compute this loss on the CPU",
        aten=("_ctc_loss_backward",),
        modules=("CTCLoss",),
    ),
    NondeterministicOperation(
        "torch.nn.EmbeddingBag",
        RAISES,
        "use mode='sum' or 'mean', or nn.Embedding and amax",
        aten=("_embedding_bag_backward", "_embedding_bag_dense_backward"),
        modules=("EmbeddingBag",),
        where="backward on CUDA, mode='max'",
        called=_max_bag,
        built=_built_with("mode", "max"),
    ),
    NondeterministicOperation(
        "torch.Tensor.put_",
        RAISES,
        f"use index_put_, or {_LAYERS}.index_add on the flattened tensor to accumulate",
        aten=("put_", "put"),
        where="accumulate=False on any device, accumulate=True on CUDA",
    ),
    NondeterministicOperation(
        "torch.histc",
        RAISES,
        "count on the CPU, or use torch.bucketize and a sum of comparisons",
        aten=("histc",),
        where="forward on CUDA, floating-point inputs",
        called=_floating("self"),
    ),
    NondeterministicOperation(
        "torch.bincount",
        RAISES,
        f"use {_LAYERS}.index_add for the weighted counts",
        aten=("bincount",),
        where="forward on CUDA, with weights",
        called=_given("weights"),
    ),
    NondeterministicOperation(
        "torch.median",
        RAISES,
        "use torch.sort(stable=True) and take the middle, or the median without indices",
        aten=("median", "nanmedian"),
        where="forward on CUDA, with indices (a dim is given)",
        called=_given("dim"),
    ),
    NondeterministicOperation(
        "torch.nn.functional.grid_sample",
        RAISES,
        f"resample before the network (detaug.transforms), or gather the corners and use {_LAYERS}.index_add",
        aten=("grid_sampler_2d_backward", "grid_sampler_3d_backward", "cudnn_grid_sampler_backward"),
    ),
    NondeterministicOperation(
        "torch.Tensor.scatter_reduce (prod, amin, amax)",
        RAISES,
        "use reduce='sum' or 'mean', which the deterministic mode handles",
        aten=("scatter_reduce", "scatter_reduce_"),
        where="forward on CUDA",
        called=lambda arguments: arguments.get("reduce") not in ("sum", "mean"),
    ),
    NondeterministicOperation(
        "torch.Tensor.index_reduce",
        RAISES,
        f"use {_LAYERS}.index_add for sums and means, or index_select and a reduction per group",
        aten=("index_reduce", "index_reduce_"),
        where="forward on CUDA",
    ),
    # ---- another algorithm is taken in deterministic mode ----------------------------------------------------------
    NondeterministicOperation(
        "torch.nn.Conv1d ... ConvTranspose3d",
        HANDLED,
        "switch on deterministic_mode(), and leave cudnn.benchmark off: it picks the algorithm by timing",
        aten=("convolution", "convolution_backward", "cudnn_convolution", "cudnn_convolution_transpose"),
        modules=("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"),
        where="forward and backward on CUDA",
    ),
    NondeterministicOperation(
        "cuBLAS matrix products",
        HANDLED,
        "set CUBLAS_WORKSPACE_CONFIG=:4096:8 before CUDA starts, as deterministic_mode() does",
        aten=("mm", "addmm", "baddbmm", "addmv", "mv"),
        modules=("Linear", "Bilinear", "MultiheadAttention"),
        where="forward and backward on CUDA, with several streams",
    ),
    NondeterministicOperation(
        "torch.bmm",
        HANDLED,
        _MODE_IS_ENOUGH,
        aten=("bmm",),
        where="forward on CUDA, sparse times dense",
        called=_sparse,
    ),
    NondeterministicOperation(
        "cuBLAS batched matrix products",
        HANDLED,
        "set CUBLAS_WORKSPACE_CONFIG=:4096:8 before CUDA starts, as deterministic_mode() does",
        aten=("bmm",),
        where="forward and backward on CUDA, with several streams",
    ),
    NondeterministicOperation(
        "torch.cumsum",
        HANDLED,
        _MODE_IS_ENOUGH,
        aten=("cumsum", "cumsum_"),
        where="forward on CUDA, floating-point inputs",
        called=_floating("self"),
    ),
    NondeterministicOperation(
        "torch.Tensor.index_put (accumulate=True), and indexing with tensors, differentiated",
        HANDLED,
        f"switch on deterministic_mode(), or use {_LAYERS}.index_add",
        aten=("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"),
        where="on CPU and CUDA",
        called=_truthy("accumulate"),
    ),
    NondeterministicOperation(
        "torch.Tensor.index_put (accumulate=False)",
        HANDLED,
        "switch on deterministic_mode(), or make sure that no index comes twice",
        aten=("index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"),
        where="forward on CPU and CUDA, indices that come twice",
        called=_falsy("accumulate"),
    ),
    NondeterministicOperation(
        "torch.Tensor.scatter_add_, and torch.gather, differentiated",
        HANDLED,
        f"switch on deterministic_mode(), or use {_LAYERS}.scatter_add",
        aten=("scatter_add", "scatter_add_"),
        where="forward and backward on CUDA",
    ),
    NondeterministicOperation(
        "torch.Tensor.scatter",
        HANDLED,
        "switch on deterministic_mode(), or make sure that no index comes twice",
        aten=("scatter", "scatter_"),
        where="forward on CUDA, src a tensor, indices that come twice",
        called=_tensor_source,
    ),
    NondeterministicOperation(
        "torch.Tensor.scatter_reduce (sum, mean)",
        HANDLED,
        f"switch on deterministic_mode(), or use {_LAYERS}.scatter_add",
        aten=("scatter_reduce", "scatter_reduce_"),
        where="forward on CUDA",
        called=lambda arguments: arguments.get("reduce") in ("sum", "mean"),
    ),
    NondeterministicOperation(
        "torch.index_add, and torch.index_select or repeat_interleave, differentiated",
        HANDLED,
        f"switch on deterministic_mode(), or use {_LAYERS}.index_add",
        aten=("index_add", "index_add_"),
        where="forward and backward on CUDA",
    ),
    NondeterministicOperation(
        "torch.Tensor.index_copy",
        HANDLED,
        "switch on deterministic_mode(), or make sure that no index comes twice",
        aten=("index_copy", "index_copy_"),
        where="forward on CPU and CUDA, indices that come twice",
    ),
    NondeterministicOperation(
        "torch.nn.MaxPool3d",
        HANDLED,
        "switch on deterministic_mode(); releases before it was handled raise: use strided convolutions there",
        aten=("max_pool3d_with_indices_backward",),
        modules=("MaxPool3d",),
    ),
    NondeterministicOperation(
        "torch.nn.Embedding",
        HANDLED,
        _MODE_IS_ENOUGH,
        aten=("embedding_dense_backward",),
        modules=("Embedding",),
    ),
    *(
        NondeterministicOperation(
            f"torch.nn.ReplicationPad{axes}d",
            HANDLED,
            f"switch on deterministic_mode(), or use {_LAYERS}.ReplicationPad{axes}d where it raises",
            aten=(f"replication_pad{axes}d_backward",),
            modules=(f"ReplicationPad{axes}d",),
        )
        for axes in (1, 2, 3)
    ),
    NondeterministicOperation(
        "torch.nn.functional.scaled_dot_product_attention",
        HANDLED,
        "switch on deterministic_mode() and not warn_only, which keeps the fast algorithm; or sdpa_kernel(MATH)",
        aten=(
            "_scaled_dot_product_flash_attention_backward",
            "_scaled_dot_product_efficient_attention_backward",
            "_scaled_dot_product_cudnn_attention_backward",
            "_scaled_dot_product_flash_attention_for_cpu_backward",
            "_flash_attention_backward",
            "_efficient_attention_backward",
        ),
        modules=("MultiheadAttention", "TransformerEncoderLayer", "TransformerDecoderLayer"),
    ),
    # ---- the mode does nothing about these --------------------------------------------------------------------------
    NondeterministicOperation(
        "torch.nn.RNN, LSTM and GRU",
        SILENT,
        "set CUBLAS_WORKSPACE_CONFIG=:4096:8 (or CUDA_LAUNCH_BLOCKING=1) before CUDA starts, as PyTorch's notes say",
        aten=("_cudnn_rnn", "_cudnn_rnn_backward"),
        modules=("RNN", "LSTM", "GRU"),
        where="forward and backward on CUDA, some releases of cuDNN",
    ),
    NondeterministicOperation(
        "torch.topk, torch.kthvalue and torch.mode",
        SILENT,
        "where values may tie, use torch.sort(stable=True) and take the first ones",
        aten=("topk", "kthvalue", "mode"),
        where="forward, which of several equal values is taken",
    ),
    NondeterministicOperation(
        "torch.sort (stable=False)",
        SILENT,
        "pass stable=True where values may tie and their indices are used",
        aten=("sort", "argsort"),
        where="forward, the order of equal values",
        called=_falsy("stable"),
    ),
)

_BY_ATEN_NAME: dict[str, list[NondeterministicOperation]] = {}
for _row in OPERATIONS:
    for _name in _row.aten:
        _BY_ATEN_NAME.setdefault(_name, []).append(_row)
