"""How objects that pickle knows only for other processes, or not at all, are copied within one.

Functions keep their module's variables and get their own closures and defaults; locks are replaced
by new ones; arrays and tensors that share memory still share it.
"""

from __future__ import annotations

import copyreg
import functools
import random
import sys
import threading
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug.objects.tensor_pickling import has_plain_memory, tensor_on

#: Shared with every copy: they hold code, or belong to the whole process. The run-time check covers
#: variables of classes and modules.
BY_REFERENCE = (
    *(type, types.ModuleType, types.CodeType, property, staticmethod, classmethod),
    *(types.GetSetDescriptorType, types.MemberDescriptorType, types.MethodDescriptorType),
    *(types.WrapperDescriptorType, types.ClassMethodDescriptorType),
    *(np.ufunc, np.dtype, torch.dtype, torch.device),
)
_GLOBAL_GENERATORS = (random._inst, np.random.mtrand._rand)
LOCKS = type(threading.Lock()), type(threading.RLock())
_IMMUTABLE = (str, bytes, int, float, complex, bool, type(None), tuple, frozenset, *BY_REFERENCE)


def is_shared_function(value: Any) -> bool:
    """Whether it is a function without its own variables: a closure, attributes, or defaults that
    can change.
    """
    if type(value) is types.FunctionType:
        defaults = (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
        return not (value.__closure__ or value.__dict__) and all(
            isinstance(each, _IMMUTABLE) for each in defaults
        )
    if type(value) is types.BuiltinFunctionType:
        # Methods of built-in classes are of this type as well, and bound to an object
        # (``rng.normal``).
        owner = value.__self__
        is_global = any(owner is each for each in _GLOBAL_GENERATORS)
        return owner is None or is_global or isinstance(owner, (type, types.ModuleType))
    return False


class SharedRef(NamedTuple):
    """Marks what is shared with the copies."""

    value: Any


def _reduce_function(function: types.FunctionType) -> tuple[Any, ...]:
    """A function of the same code and module variables; its closure, defaults and attributes are
    copied.
    """
    made_of = (
        SharedRef(function.__code__),
        SharedRef(function.__globals__),
        function.__name__,
        None,
        function.__closure__,
    )
    state = (
        function.__qualname__,
        function.__module__,
        function.__defaults__,
        function.__kwdefaults__,
        vars(function),
    )
    return types.FunctionType, made_of, state, None, None, _fill_function


def _fill_function(made: types.FunctionType, state: tuple[Any, ...]) -> None:
    made.__qualname__, made.__module__, made.__defaults__, made.__kwdefaults__, attributes = state
    made.__dict__.update(attributes)


def _reduce_cell(cell: types.CellType) -> tuple[Any, ...]:
    try:
        contents = (cell.cell_contents,)
    except ValueError:  # not yet set
        return types.CellType, ()
    # In the state, not the arguments: it may lead back to the function around it.
    return types.CellType, (), contents, None, None, _fill_cell


def _fill_cell(cell: types.CellType, contents: tuple[Any]) -> None:
    (cell.cell_contents,) = contents


def reduce_by_class(obj: Any, protocol: int = 5) -> Any:
    """As pickle reduces it, but where that would lose attributes or not end."""
    kind: Any = type(obj)
    if (
        isinstance(obj, np.ndarray)
        and kind.__reduce__ is np.ndarray.__reduce__
        and getattr(obj, "__dict__", None)
    ):
        array: Any = obj.__reduce__()
        function, arguments, state = array
        return function, arguments, (state, vars(obj)), None, None, _fill_array
    registered = copyreg.dispatch_table.get(kind)
    reduced: Any = registered(obj) if registered else obj.__reduce_ex__(protocol)
    passes_on = hasattr(kind, "__getattr__") and not hasattr(kind, "__setstate__")
    if (
        passes_on
        and isinstance(reduced, tuple)
        and len(reduced) > 2
        and isinstance(reduced[2], dict)
    ):
        # pickle asks the unfinished copy for `__setstate__`: one that passes such questions on to a
        # part never ends
        return (*(*reduced, None, None)[:5], _fill_dict)
    return reduced


def _fill_array(array: Any, state: tuple[Any, dict[str, Any]]) -> None:
    array.__setstate__(state[0])
    vars(array).update(state[1])


def _fill_dict(obj: Any, state: dict[str, Any]) -> None:
    vars(obj).update(state)


def _reduce_cache(cached: Any) -> Any:
    """A ``functools.lru_cache`` that has a name is shared, like other functions; any other one
    starts empty.
    """
    found: Any = sys.modules.get(cached.__module__)
    for name in cached.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is cached:
        return NotImplemented
    return _new_cache, (cached.cache_parameters(), cached.__wrapped__)


def _new_cache(parameters: dict[str, Any], function: Callable[..., Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def reduce_array(array: np.ndarray[Any, Any]) -> Any:
    """A view of another array's memory remains one; NotImplemented for an array with its own
    memory.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if (
        owner is array
        or type(owner) is not np.ndarray
        or array.dtype.hasobject
        or not owner.flags.forc
    ):
        return NotImplemented
    offset = array.ctypes.data - owner.ctypes.data
    return _view_of, (owner, offset, array.dtype, array.shape, array.strides, array.flags.writeable)


def _view_of(
    owner: np.ndarray[Any, Any], offset: int, dtype: Any, shape: Any, strides: Any, writeable: bool
) -> np.ndarray[Any, Any]:
    flat = owner.reshape(-1, order="C" if owner.flags.c_contiguous else "F")
    view: np.ndarray[Any, Any] = np.ndarray(shape, dtype, flat.view(np.uint8), offset, strides)
    view.flags.writeable = writeable and view.flags.writeable
    return view


def reduce_tensor(tensor: torch.Tensor, memories: dict[int, np.ndarray[Any, Any]]) -> Any:
    """A CPU tensor over a copy of its memory, which other tensors may view as well; `memories` are
    those met before, by address.

    NotImplemented for what is kept in other ways (sparse, quantized, on a GPU): torch's own
    pickling copies it. TypeError: the tensor is part of a graph.
    """
    if not has_plain_memory(tensor) or tensor.is_conj() or tensor.is_neg():
        return NotImplemented
    if tensor.requires_grad and not tensor.is_leaf:
        raise TypeError(
            "a tensor that is part of a graph (requires_grad, not a leaf) cannot be copied; "
            "detach() it"
        )
    storage = tensor.untyped_storage()
    memory = memories.get(storage.data_ptr())
    if memory is None:
        memory = torch.empty(0, dtype=torch.uint8, device="cpu").set_(storage).numpy()
        memories[storage.data_ptr()] = memory
    place = (tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride()))
    return tensor_on, (memory, tensor.dtype, *place, tensor.requires_grad)


#: By exact type.
REDUCERS: dict[type, Callable[[Any], Any]] = {
    types.FunctionType: _reduce_function,
    types.CellType: _reduce_cell,
    # pickle's own way looks the function up by name, which fails for private names and is another
    # one in subclasses
    types.MethodType: lambda method: (types.MethodType, (method.__func__, method.__self__)),
    types.MappingProxyType: lambda proxy: (types.MappingProxyType, (dict(proxy),)),
    LOCKS[0]: lambda _: (threading.Lock, ()),
    LOCKS[1]: lambda _: (threading.RLock, ()),
    threading.local: lambda local: (type(local), (), vars(local) or None),
    np.ndarray: reduce_array,
    functools._lru_cache_wrapper: _reduce_cache,
    random.SystemRandom: lambda _: (
        random.SystemRandom,
        (),
    ),  # without a state: `detaug verify` names who draws
    torch.Generator: lambda generator: (
        *(torch.Generator, (str(generator.device),), generator.get_state()),
        *(None, None, torch.Generator.set_state),
    ),
}
