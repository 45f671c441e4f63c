"""What a trial step may change in a model, kept so that it can be put back (but for random state and switches)."""

from __future__ import annotations

import copyreg
import types
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from detaug.seeding.saving import put_back, state_of

Undo = Callable[[], object]

#: How deep plain Python objects in a module's attributes are followed, and through how long containers.
_DEPTH = 4
_LONGEST = 1000
#: Bytes. Larger arrays and tensors among the attributes (a data set that a module holds) are neither copied nor put back.
_LARGEST = 2**20
_OPAQUE = (nn.Module, type, types.ModuleType, types.FunctionType, types.MethodType, str, bytes, int, float, complex)


class FoundState:
    """Parameters, buffers, gradients, flags and Python attributes of modules and all modules in them, as they are now.

    Tensors are put back in place, storage by storage, since they may overlap.
    """

    def __init__(self, roots: list[nn.Module]) -> None:
        modules = {id(each): each for root in roots for each in root.modules()}
        tensors = {
            id(each): each
            for module in modules.values()
            for each in (*module._parameters.values(), *module._buffers.values())
            if each is not None
        }
        # with `.data` as it is now: by the time it is put back the model may have been on another device
        self._data = [(tensor, tensor.data) for tensor in tensors.values()]
        self._gradients = [(each, each.grad, each.requires_grad) for each in tensors.values() if each.is_leaf]
        self._contents = _contents_of([data for _, data in self._data])
        self._attributes: list[Undo] = []
        self._generators: list[Undo] = []
        seen = {*tensors, *modules}
        for module in modules.values():
            self._follow(vars(module), seen, _DEPTH + 1)

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
        """As `restore`, without gradients, and but for generators that modules own, so that unseeded draws are found."""
        for undo in self._attributes:
            undo()
        with torch.no_grad():
            for tensor, data in self._data:
                tensor.grad = None
                tensor.data = data
            for undo in self._contents:
                undo()

    def _follow(self, value: Any, seen: set[int], depth: int) -> None:
        """Note how to put back what `value` holds; its holder puts back `value` itself."""
        if value is None or isinstance(value, _OPAQUE) or id(value) in seen or not depth:
            return
        seen.add(id(value))
        inside: list[Any] = []
        if isinstance(value, torch.Tensor):
            self._attributes += _contents_of([value.detach()] if value.nbytes <= _LARGEST else [])
        elif isinstance(value, np.ndarray):
            if value.nbytes <= _LARGEST and value.flags.writeable:
                self._attributes.append(partial(_rewrite, value, value.copy()))
        elif isinstance(value, (dict, list, set, deque)):
            self._attributes.append(partial(_refill, value, value.copy()))
            inside = list(value.values() if isinstance(value, dict) else value)
        elif isinstance(value, tuple):
            inside = list(value)
        elif (state := state_of(value)) is not None:
            self._generators.append(partial(put_back, value, state))
        else:
            slots = {name: getattr(value, name) for name in copyreg._slotnames(type(value)) if hasattr(value, name)}  # type: ignore[attr-defined]
            self._attributes += [partial(object.__setattr__, value, name, each) for name, each in slots.items()]
            inside = list(slots.values())
            if isinstance(own := getattr(value, "__dict__", None), dict):
                self._attributes.append(partial(_refill, own, dict(own)))
                inside += own.values()
        if len(inside) <= _LONGEST:
            for each in inside:
                self._follow(each, seen, depth - 1)


def _contents_of(tensors: list[torch.Tensor]) -> list[Undo]:
    holders: dict[int, Any] = {}
    for tensor in tensors:
        holder = tensor.untyped_storage() if tensor.layout == torch.strided and not tensor.is_nested else tensor
        holders[getattr(holder, "_cdata", id(holder))] = holder
    return [partial(holder.copy_, holder.clone()) for holder in holders.values()]


def _rewrite(array: np.ndarray[Any, Any], kept: np.ndarray[Any, Any]) -> None:
    """Writes only after a change: the array may be a file's memory map."""
    if array.tobytes() != kept.tobytes():
        array[...] = kept


def _refill(holder: Any, kept: Any) -> None:
    """Writes only after a change, by identity: tensors and arrays compare by element."""
    if isinstance(kept, dict):
        if [(key, id(each)) for key, each in holder.items()] == [(key, id(each)) for key, each in kept.items()]:
            return
    elif [id(each) for each in holder] == [id(each) for each in kept]:
        return
    holder.clear()
    (holder.extend if isinstance(holder, (list, deque)) else holder.update)(kept)
