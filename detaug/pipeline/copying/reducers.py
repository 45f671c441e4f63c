"""Reducers for objects that pickle knows only for other processes, or not at all.

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
    type,
    types.ModuleType,
    types.CodeType,
    property,
    staticmethod,
    classmethod,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
    np.ufunc,
    np.dtype,
    torch.dtype,
    torch.device,
)
_GLOBAL_GENERATORS = (random._inst, np.random.mtrand._rand)
_IMMUTABLE = (
    str,
    bytes,
    int,
    float,
    complex,
    bool,
    type(None),
    tuple,
    frozenset,
    *BY_REFERENCE,
)


def is_shared_function(value: Any) -> bool:
    """Return whether it is a function without variables of its own, which copies may share.

    Its own variables are a closure, attributes, and defaults that can change.
    """
    if type(value) is types.FunctionType:
        if value.__closure__ or value.__dict__:
            return False
        defaults = list(value.__defaults__ or ())
        defaults += (value.__kwdefaults__ or {}).values()
        return all(isinstance(default, _IMMUTABLE) for default in defaults)
    if type(value) is types.BuiltinFunctionType:
        # Methods of built-in classes are of this type as well, and bound to an object
        # (``rng.normal``).
        owner = value.__self__
        if owner is None or isinstance(owner, (type, types.ModuleType)):
            return True
        return any(owner is generator for generator in _GLOBAL_GENERATORS)
    return False


class SharedRef(NamedTuple):
    """A mark around a value that the copies share."""

    value: Any


def _reduce_function(function: types.FunctionType) -> tuple[Any, ...]:
    """Reduce a function to its shared code and module variables, and copies of the rest."""
    arguments = (
        SharedRef(function.__code__),
        SharedRef(function.__globals__),
        function.__name__,
        None,
        function.__closure__,
    )
    # In the state, not the arguments: they may lead back to the function.
    state = (
        function.__qualname__,
        function.__module__,
        function.__defaults__,
        function.__kwdefaults__,
        vars(function),
    )
    return types.FunctionType, arguments, state, None, None, _fill_function


def _fill_function(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    qualname, module, defaults, keyword_defaults, attributes = state
    function.__qualname__ = qualname
    function.__module__ = module
    function.__defaults__ = defaults
    function.__kwdefaults__ = keyword_defaults
    function.__dict__.update(attributes)


def _reduce_cell(cell: types.CellType) -> tuple[Any, ...]:
    try:
        contents = (cell.cell_contents,)
    except ValueError:
        # It is not yet set.
        return types.CellType, ()
    # In the state, not the arguments: it may lead back to the function around it.
    return types.CellType, (), contents, None, None, _fill_cell


def _fill_cell(cell: types.CellType, contents: tuple[Any]) -> None:
    (cell.cell_contents,) = contents


def reduce_by_class(obj: Any) -> Any:
    """Reduce an object as pickle does, except where that would lose attributes or not end."""
    kind: Any = type(obj)
    if _is_array_with_attributes(obj):
        array: Any = obj.__reduce__()
        function, arguments, state = array
        return function, arguments, (state, vars(obj)), None, None, _fill_array
    registered = copyreg.dispatch_table.get(kind)
    reduced: Any = registered(obj) if registered else obj.__reduce_ex__(5)
    if not hasattr(kind, "__getattr__") or hasattr(kind, "__setstate__"):
        return reduced
    has_state = isinstance(reduced, tuple) and len(reduced) > 2
    if not has_state or not isinstance(reduced[2], dict):
        return reduced
    # pickle asks the unfinished copy for `__setstate__`. One whose `__getattr__` passes questions
    # on to a part, which it does not have yet, would never end: so the state is set from outside.
    five_items = [*reduced, None, None][:5]
    return (*five_items, _fill_dict)


def _is_array_with_attributes(obj: Any) -> bool:
    """Return whether it is an array of a subclass whose attributes NumPy's pickling would lose."""
    if not isinstance(obj, np.ndarray):
        return False
    kind: Any = type(obj)
    return kind.__reduce__ is np.ndarray.__reduce__ and bool(getattr(obj, "__dict__", None))


def _fill_array(array: Any, state: tuple[Any, dict[str, Any]]) -> None:
    array_state, attributes = state
    array.__setstate__(array_state)
    vars(array).update(attributes)


def _fill_dict(obj: Any, state: dict[str, Any]) -> None:
    vars(obj).update(state)


def _reduce_cache(cached: Any) -> Any:
    """Share a ``functools.lru_cache`` that can be found by its name; let any other start empty."""
    value: Any = sys.modules.get(cached.__module__)
    for name in cached.__qualname__.split("."):
        value = getattr(value, name, None)
    if value is cached:
        return NotImplemented
    return _new_cache, (cached.cache_parameters(), cached.__wrapped__)


def _new_cache(parameters: dict[str, Any], function: Callable[..., Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def reduce_array(array: np.ndarray[Any, Any]) -> Any:
    """Reduce a view of another array to a view of the copied array.

    Returns:
        The reduced view; NotImplemented for an array with its own memory.
    """
    owner = array
    while isinstance(owner.base, np.ndarray):
        owner = owner.base
    if owner is array or type(owner) is not np.ndarray:
        return NotImplemented
    if array.dtype.hasobject or not owner.flags.forc:
        return NotImplemented
    offset = array.ctypes.data - owner.ctypes.data
    layout = (array.dtype, array.shape, array.strides, array.flags.writeable)
    return _view_of, (owner, offset, *layout)


def _view_of(
    owner: np.ndarray[Any, Any],
    offset: int,
    dtype: Any,
    shape: Any,
    strides: Any,
    is_writeable: bool,
) -> np.ndarray[Any, Any]:
    # "A", the order of memory, needs no copy: views of one array must share its memory.
    memory = owner.ravel("A").view(np.uint8)
    view: np.ndarray[Any, Any] = np.ndarray(shape, dtype, memory, offset, strides)
    if not is_writeable:
        view.flags.writeable = False
    return view


def reduce_tensor(tensor: torch.Tensor, memories: dict[int, np.ndarray[Any, Any]]) -> Any:
    """Reduce a CPU tensor to a view of its memory, which other tensors may view as well.

    Args:
        tensor: the tensor.
        memories: the memories that were met before, by address; one is added for a new memory.

    Returns:
        The reduced tensor; NotImplemented for one that is stored in another way (sparse, quantized,
        on a GPU): torch's own pickling copies it.

    Raises:
        TypeError: the tensor is part of a graph.
    """
    if not has_plain_memory(tensor) or tensor.is_conj() or tensor.is_neg():
        return NotImplemented
    if tensor.requires_grad and not tensor.is_leaf:
        raise TypeError(
            "a tensor that is part of a graph (requires_grad, not a leaf) cannot be copied; "
            "detach() it"
        )
    storage = tensor.untyped_storage()
    address = storage.data_ptr()
    memory = memories.get(address)
    if memory is None:
        # One array for all tensors that view the storage: the copies view one memory again.
        all_bytes = torch.empty(0, dtype=torch.uint8, device="cpu")
        memory = all_bytes.set_(storage).numpy()
        memories[address] = memory
    shape = tuple(tensor.shape)
    strides = tuple(tensor.stride())
    offset = tensor.storage_offset()
    return tensor_on, (memory, tensor.dtype, offset, shape, strides, tensor.requires_grad)


def _reduce_method(method: types.MethodType) -> tuple[Any, ...]:
    # pickle looks the function up by name: that fails for private names, and in subclasses it finds
    # another function.
    return types.MethodType, (method.__func__, method.__self__)


def _reduce_proxy(proxy: types.MappingProxyType[Any, Any]) -> tuple[Any, ...]:
    return types.MappingProxyType, (dict(proxy),)


def _new_lock(_: Any) -> tuple[Any, ...]:
    return threading.Lock, ()


def _new_rlock(_: Any) -> tuple[Any, ...]:
    return threading.RLock, ()


def _reduce_thread_local(local: threading.local) -> tuple[Any, ...]:
    # Those of this thread: a thread cannot read another one's.
    attributes = vars(local) or None
    return type(local), (), attributes


def _new_system_random(_: Any) -> tuple[Any, ...]:
    # Without a state: it draws from the system's entropy, and `detaug verify` names who draws.
    return random.SystemRandom, ()


def _reduce_torch_generator(generator: torch.Generator) -> tuple[Any, ...]:
    device = str(generator.device)
    state = generator.get_state()
    set_state = torch.Generator.set_state
    return torch.Generator, (device,), state, None, None, set_state


#: By exact type.
REDUCERS: dict[type, Callable[[Any], Any]] = {
    types.FunctionType: _reduce_function,
    types.CellType: _reduce_cell,
    types.MethodType: _reduce_method,
    types.MappingProxyType: _reduce_proxy,
    type(threading.Lock()): _new_lock,
    type(threading.RLock()): _new_rlock,
    threading.local: _reduce_thread_local,
    np.ndarray: reduce_array,
    functools._lru_cache_wrapper: _reduce_cache,
    random.SystemRandom: _new_system_random,
    torch.Generator: _reduce_torch_generator,
}
