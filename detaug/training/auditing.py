"""`audit` finds out whether a training step is deterministic, and where it stops being so."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_map

from detaug.objects.differences import first_different_event
from detaug.objects.fingerprints import dense, fingerprint
from detaug.objects.walking import leaves
from detaug.training.random_state import isolate_rng
from detaug.training.switches import preserved_switches

Loss = Callable[[Any, Any], torch.Tensor]

#: Parts of the names in PyTorch's alerts → what to use instead.
ADVICE = {
    "nll_loss2d": (
        "detaug.training.make_deterministic swaps in a form of CrossEntropyLoss; NLLLoss has none"
        " here"
    ),
    "adaptive_avg_pool": (
        "it has no deterministic form here: pool with a fixed kernel, or to an output size of 1"
    ),
    "avg_pool": "detaug.training.make_deterministic swaps in a form of AvgPool3d",
    "upsample_bicubic": "it has no deterministic form here: upsample bilinearly",
    "upsample_": (
        "detaug.training.make_deterministic swaps in a form of Upsample; antialias=True has none"
        " here"
    ),
    "reflection_pad": "it has no deterministic form here: pad with zeros or replicate",
    "grid_sampler": "resample before the network (detaug.transforms)",
    "max_unpool": "use a transposed convolution, or nn.Upsample(mode='nearest')",
    "max_pool": "use nn.MaxPool with a fixed kernel and stride, or amax where the output size is 1",
}
_OTHERWISE = (
    "choose another operation, or run with deterministic_mode('warn') and know that it varies"
)


@dataclasses.dataclass(frozen=True)
class AuditReport:
    """The result of an audit.

    Attributes:
        device: where it ran.
        difference: the first output, loss or gradient that differs between two runs, in the order
            in which they are computed; "" where none does.
        operations: those that PyTorch alerts on, on this device → what to use instead.
    """

    device: str
    difference: str
    operations: dict[str, str]

    @property
    def deterministic(self) -> bool:
        """True if both runs gave the same bytes: no proof for other batches or devices."""
        return not self.difference

    def __str__(self) -> str:
        if self.difference:
            lines = [f"Not deterministic: the first difference is in {self.difference}"]
        else:
            lines = [f"Deterministic: the same bytes in all outputs and gradients on {self.device}"]
        if not self.operations:
            advice = "" if self.device.startswith("cuda") else "; on a GPU it may: audit there"
            lines.append(f"PyTorch alerts on no operation that ran on {self.device}{advice}")
        for name, advice in self.operations.items():
            lines.append(f"raises in deterministic mode: {name}: {advice}")
        return "\n".join(lines)


def audit(
    model: nn.Module, loss: Loss, sample_batch: Sequence[Any], device: str | torch.device = "cpu"
) -> AuditReport:
    """Run forward and backward twice, and report where the two runs first differ.

    Each runs with a copy of the model. Both start from the same weights, batch and random state
    (`random`, NumPy, torch, CUDA), in deterministic mode "warn". The model, the loss, random state
    and switches stay as they are.

    Args:
        model: in the mode, training or evaluation, in which it is to be audited; not compiled.
        loss: called as ``loss(output, target)``; returns a tensor with one element.
        sample_batch: ``(input, target)``, each of which may be nested (deep supervision: a list of
            targets); NumPy arrays become tensors. The model takes an input that is a tuple as
            several arguments.
        device: where to run, e.g. ``"cuda"``.

    Raises:
        TypeError: the model is no module, or the batch is no pair.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(
            f"model must be a torch.nn.Module, got {model!r} of type {type(model).__name__}"
        )
    if not isinstance(sample_batch, (tuple, list)) or len(sample_batch) != 2:
        raise TypeError(f"sample_batch must be (input, target), got {type(sample_batch).__name__}")
    # Warnings and not errors: an operation that has no deterministic form must run, to be compared
    # and named.
    step = partial(_values_of_a_step, model, loss, sample_batch, torch.device(device))
    with preserved_switches(), warnings.catch_warnings(record=True) as alerts:
        torch.use_deterministic_algorithms(True, warn_only=True)
        # PyTorch warns once a process of some operations, and Python once a line.
        warnings.simplefilter("always")
        first = step()
        second = step()
    # Alerts are known by their text: all contain this word, and begin with the operation.
    advice: dict[str, str] = {}
    for alert in alerts:
        text = str(alert.message)
        if "deterministic" in text:
            operation = text.strip().partition(" ")[0]
            advice[operation] = _advice_for(operation)
    # Only the first difference is reported: later ones may follow from it.
    event = first_different_event(first, second)
    return AuditReport(str(torch.device(device)), event[0] if event else "", advice)


def _advice_for(operation: str) -> str:
    """Return what to use instead of an operation that PyTorch alerts on."""
    for part, advice in ADVICE.items():
        if part in operation:
            return advice
    return _OTHERWISE


def _values_of_a_step(
    model: nn.Module, loss: Loss, sample_batch: Sequence[Any], device: torch.device
) -> list[tuple[str, str]]:
    """Run one step; return (name, digest) of each output and gradient, in order of computation."""
    # Digests instead of tensors: the outputs of all layers may not fit into memory.
    values: list[tuple[str, str]] = []
    with isolate_rng(include_cuda=device.type != "cpu"):
        # Together: what the model and the loss share stays shared.
        model, loss = copy.deepcopy((model, loss))
        _watch(model.to(device), "", values)
        if isinstance(loss, nn.Module):
            _watch(loss.to(device), "loss", values)
        inputs, target = tree_map(partial(_copied, device=device), tuple(sample_batch))
        output = model(*inputs) if isinstance(inputs, tuple) else model(inputs)
        value = loss(output, target)
        values.append(("the loss", digest(value)))
        # The parameters' hooks append the digests of their gradients to `values`.
        value.backward()  # type: ignore[no-untyped-call]
    return values


def _watch(root: nn.Module, prefix: str, values: list[tuple[str, str]]) -> None:
    """Have the modules of `root` append (name, digest) of outputs and gradients to `values`."""

    def on_output(name: str, module: nn.Module, _: Any, value: Any) -> None:
        values.append((f"output of {name or 'the model'} ({type(module).__name__})", digest(value)))

    def on_gradient(name: str, parameter: torch.Tensor) -> None:
        values.append((f"gradient of {name}", digest(parameter.grad)))

    for name, module in root.named_modules(prefix=prefix):
        module.register_forward_hook(partial(on_output, name))
    # Gradients come from the network's end to its beginning, as they are computed.
    for name, parameter in root.named_parameters(prefix=prefix):
        if parameter.requires_grad:
            # Called when the gradient is complete: a parameter used twice gets it in two parts.
            hook = partial(on_gradient, name)
            parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]


def _copied(value: Any, device: torch.device) -> Any:
    """Return a copy of a tensor or array on the device; other objects are returned themselves.

    A copy, since a step may write into its input. Arrays become tensors.
    """
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.from_numpy(np.ascontiguousarray(value))
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone().to(device)


def digest(value: Any) -> str:
    """Return a digest of the tensors, arrays, numbers and strings in nested containers."""
    named: list[tuple[str, Any]] = []
    # An output may hold objects that have no bytes to compare; they are passed over.
    for path, leaf in leaves(value):
        if isinstance(leaf, torch.Tensor):
            named.append((path, dense(leaf)))
        elif isinstance(leaf, (np.ndarray, bool, int, float, complex, str, np.generic)):
            named.append((path, leaf))
    return fingerprint(named)
