"""What a trial step may change, kept so that it can be put back: a model, the random state, PyTorch's switches."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from detaug.global_rng import preserved_global_rngs

Undo = Callable[[], None]

#: How deep plain Python objects in a module's attributes are followed.
_DEPTH = 4
_OPAQUE = (nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType, str, bytes, int, float, complex)


class FoundState:
    """Parameters, buffers, gradients, flags and Python attributes of modules and all modules in them, as they are now.

    Tensors are put back in place, into the objects that they were found in.
    """

    def __init__(self, roots: list[nn.Module]) -> None:
        modules = list({id(each): each for root in roots for each in root.modules()}.values())
        tensors = list({id(tensor): tensor for module in modules for tensor in _own_tensors(module)}.values())
        # with `.data` as it is now: by the time it is put back the model may have been on another device
        self._tensors = [(tensor, tensor.data, tensor.detach().clone()) for tensor in tensors]
        self._gradients = [(tensor, tensor.grad, tensor.requires_grad) for tensor in tensors if tensor.is_leaf]
        self._registries: list[Undo] = []
        self._attributes: list[Undo] = []
        seen = {id(found) for found in (*tensors, *modules)}
        for module in modules:
            for name in ("_parameters", "_buffers", "_modules"):
                self._registries.append(_undo_entries(getattr(module, name)))
            own = vars(module)
            self._attributes.append(_undo_entries(own))
            for name, value in own.items():
                if not name.endswith(("_hooks", "_parameters", "_buffers", "_modules")):
                    self._attributes += _undo_inside(value, seen, _DEPTH)

    def restore_tensors(self) -> None:
        """Parameters and buffers as found, on the device where they are now; no gradients."""
        _do(self._registries)
        with torch.no_grad():
            for tensor, _, copy in self._tensors:
                tensor.data.copy_(copy)
                tensor.grad = None

    def restore_attributes(self) -> None:
        """Python attributes, and what the containers, generators, objects and tensors in them hold."""
        _do(self._attributes)

    def restore(self) -> None:
        """Everything, on the device where it was."""
        _do(self._attributes)
        _do(self._registries)
        with torch.no_grad():
            for tensor, data, copy in self._tensors:
                tensor.grad = None
                tensor.data = data
                data.copy_(copy)
        for tensor, gradient, flag in self._gradients:
            if tensor.requires_grad != flag:
                tensor.requires_grad_(flag)
            tensor.grad = gradient


@contextmanager
def preserved_random_state(device: torch.device) -> Iterator[None]:
    """`random`, NumPy, torch on the CPU and on the device (or on all CUDA devices that are in use) as they were."""
    with preserved_global_rngs():
        in_use = device.type == "cuda" or torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
        cuda = torch.cuda.get_rng_state_all() if in_use else None
        mps = torch.mps.get_rng_state() if device.type == "mps" else None
        try:
            yield
        finally:
            if cuda is not None:
                torch.cuda.set_rng_state_all(cuda)
            if mps is not None:
                torch.mps.set_rng_state(mps)


@contextmanager
def preserved_switches() -> Iterator[None]:
    """The switches that code in a model may flip, and that an audit flips, as they were."""
    cudnn = torch.backends.cudnn
    flags = (cudnn.enabled, cudnn.benchmark, cudnn.deterministic)
    mode = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    try:
        yield
    finally:
        cudnn.enabled, cudnn.benchmark, cudnn.deterministic = flags
        # also sets the compiler's own switch: not called without need
        if (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ) != mode:
            torch.use_deterministic_algorithms(mode[0], warn_only=mode[1])
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def _own_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    for registry in (module._parameters, module._buffers):
        yield from (tensor for tensor in registry.values() if tensor is not None)


def _do(undos: list[Undo]) -> None:
    for undo in undos:
        undo()


def _undo_entries(holder: dict[Any, Any]) -> Undo:
    kept = dict(holder)

    def undo() -> None:
        # by identity, for tensors and arrays compare by element
        if [(key, id(value)) for key, value in holder.items()] != [(key, id(value)) for key, value in kept.items()]:
            holder.clear()
            holder.update(kept)

    return undo


def _undo_inside(value: Any, seen: set[int], depth: int) -> list[Undo]:
    """How to put back what `value` holds; it itself is its holder's business."""
    if value is None or isinstance(value, _OPAQUE) or id(value) in seen or not depth:
        return []
    seen.add(id(value))
    undos: list[Undo] = []
    inside: list[Any] = []
    if isinstance(value, torch.Tensor):
        undos.append(_undo_tensor(value))
    elif isinstance(value, np.ndarray):
        undos.append(_undo_array(value))
    elif isinstance(value, dict):
        undos.append(_undo_entries(value))
        inside = list(value.values())
    elif isinstance(value, (list, set)):
        undos.append(_undo_items(value))
        inside = list(value)
    elif isinstance(value, tuple):
        inside = list(value)
    elif (undo := _undo_generator(value)) is not None:
        undos.append(undo)
    elif isinstance(getattr(value, "__dict__", None), dict):
        undos.append(_undo_entries(vars(value)))
        inside = list(vars(value).values())
    for each in inside:
        undos += _undo_inside(each, seen, depth - 1)
    return undos


def _undo_tensor(tensor: torch.Tensor) -> Undo:
    kept = tensor.detach().clone()

    def undo() -> None:
        if tensor.shape == kept.shape:
            tensor.detach().copy_(kept)

    return undo


def _undo_array(array: np.ndarray) -> Undo:
    kept = array.copy()

    def undo() -> None:
        if array.flags.writeable:
            array[...] = kept

    return undo


def _undo_items(holder: list[Any] | set[Any]) -> Undo:
    kept = list(holder)

    def undo() -> None:
        if isinstance(holder, list):
            holder[:] = kept
        else:
            holder.clear()
            holder.update(kept)

    return undo


def _undo_generator(value: Any) -> Undo | None:
    if isinstance(value, np.random.Generator):
        bits, state = value.bit_generator, value.bit_generator.state
        return lambda: setattr(bits, "state", state)
    if isinstance(value, np.random.RandomState):
        legacy = value.get_state()
        return lambda: value.set_state(legacy)
    if isinstance(value, random.Random):
        pythons = value.getstate()
        return lambda: value.setstate(pythons)
    if isinstance(value, torch.Generator):
        torchs = value.get_state()
        return lambda: _nothing(value.set_state(torchs))
    return None


def _nothing(_: Any) -> None:
    return None
