"""What a trial step may change in a model, kept so that it can be put back. Random state and switches have their own."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from detaug.training import generator_state

Undo = Callable[[], object]

#: How deep plain Python objects in a module's attributes are followed, and through how long containers.
_DEPTH = 4
_LONGEST = 1000
#: Bytes. Larger arrays and tensors among the attributes (a data set that a module holds) are neither copied nor put back.
_LARGEST = 2**20
_OPAQUE = (nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType, str, bytes, int, float, complex)


class FoundState:
    """Parameters, buffers, gradients, flags and Python attributes of modules and all modules in them, as they are now.

    Tensors are put back in place, into the objects that they were found in, storage by storage: they may overlap.
    """

    def __init__(self, roots: list[nn.Module]) -> None:
        modules = list({id(each): each for root in roots for each in root.modules()}.values())
        tensors = list({id(tensor): tensor for module in modules for tensor in _own_tensors(module)}.values())
        # with `.data` as it is now: by the time it is put back the model may have been on another device
        self._data = [(tensor, tensor.data) for tensor in tensors]
        self._values = _undo_values([data for _, data in self._data])
        self._gradients = [(tensor, tensor.grad, tensor.requires_grad) for tensor in tensors if tensor.is_leaf]
        self._registries: list[Undo] = []
        self._attributes: list[Undo] = []
        self._generators: list[Undo] = []
        seen = {id(found) for found in (*tensors, *modules)}
        for module in modules:
            for name in ("_parameters", "_buffers", "_modules"):
                self._registries.append(_undo_entries(getattr(module, name)))
            own = vars(module)
            self._attributes.append(_undo_entries(own))
            for name, value in own.items():
                if not name.endswith(("_hooks", "_parameters", "_buffers", "_modules")):
                    self._follow(value, seen, _DEPTH)

    def restore(self) -> None:
        """Everything."""
        self.restore_for_a_run()
        for undo in self._generators:
            undo()
        for tensor, gradient, flag in self._gradients:
            if tensor.requires_grad != flag:
                tensor.requires_grad_(flag)
            tensor.grad = gradient

    def restore_for_a_run(self) -> None:
        """As `restore`, without gradients, and but for generators that modules own: what is drawn from one that nobody
        seeded is to be seen."""
        for undo in (*self._attributes, *self._registries):
            undo()
        with torch.no_grad():
            for tensor, data in self._data:
                tensor.grad = None
                tensor.data = data
            for undo in self._values:
                undo()

    def _follow(self, value: Any, seen: set[int], depth: int) -> None:
        """How to put back what `value` holds; it itself is its holder's business."""
        if value is None or isinstance(value, _OPAQUE) or id(value) in seen or not depth:
            return
        seen.add(id(value))
        inside: list[Any] = []
        if isinstance(value, torch.Tensor):
            if value.numel() * value.element_size() <= _LARGEST:
                self._attributes += _undo_values([value.detach()])
        elif isinstance(value, np.ndarray):
            if value.nbytes <= _LARGEST and value.flags.writeable and not isinstance(value, np.memmap):
                self._attributes.append(_undo_array(value))
        elif isinstance(value, dict):
            self._attributes.append(_undo_entries(value))
            inside = list(value.values())
        elif isinstance(value, (list, set)):
            self._attributes.append(_undo_items(value))
            inside = list(value)
        elif isinstance(value, tuple):
            inside = list(value)
        elif generator_state.is_generator(value):
            self._generators.append(generator_state.generator_step("", generator_state.of_generator(value), value))
        elif isinstance(getattr(value, "__dict__", None), dict):
            self._attributes.append(_undo_entries(vars(value)))
            inside = list(vars(value).values())
        if len(inside) <= _LONGEST:
            for each in inside:
                self._follow(each, seen, depth - 1)


def _own_tensors(module: nn.Module) -> Iterator[torch.Tensor]:
    for registry in (module._parameters, module._buffers):
        yield from (tensor for tensor in registry.values() if tensor is not None)


def _undo_values(tensors: list[torch.Tensor]) -> list[Undo]:
    undos: list[Undo] = []
    storages: dict[int, torch.UntypedStorage] = {}
    for tensor in tensors:
        if tensor.layout == torch.strided and not tensor.is_nested:
            storage = tensor.untyped_storage()
            storages[storage._cdata] = storage
        else:
            undos.append(_undo_copy(tensor))
    return undos + [_undo_copy(storage) for storage in storages.values()]


def _undo_copy(holder: Any) -> Undo:
    kept = holder.clone()
    return lambda: holder.copy_(kept)


def _undo_entries(holder: dict[Any, Any]) -> Undo:
    kept = dict(holder)

    def undo() -> None:
        # by identity, for tensors and arrays compare by element
        if [(key, id(value)) for key, value in holder.items()] != [(key, id(value)) for key, value in kept.items()]:
            holder.clear()
            holder.update(kept)

    return undo


def _undo_array(array: np.ndarray) -> Undo:
    kept = array.copy()

    def undo() -> None:
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
