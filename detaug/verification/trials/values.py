"""Digests of whatever a variable may hold, to see that it is not what it was in another run."""

from __future__ import annotations

import random
import types
from collections import deque
from typing import Any

import numpy as np
import torch
import xxhash

from detaug.purity import references

#: Of larger arrays (bytes) only a sample is digested, because that happens at every line.
_WHOLE_BYTES = 1 << 18
_SAMPLE = 1 << 14
_ITEMS = 64
_DEPTH = 4

GENERATORS = (np.random.Generator, np.random.RandomState, random.Random, torch.Generator)
#: Of the standard library's moving parts the inside says nothing about the batch.
_OPAQUE = frozenset({"threading", "concurrent", "queue", "multiprocessing", "logging", "subprocess", "asyncio", "_io"})
_BY_NAME = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)


def digest(value: Any, depth: int = _DEPTH) -> str:
    """A short text that is the same for equal values in any process, and (but for very large ones) differs otherwise.

    Neither hash order nor addresses enter it: a set is digested in sorted order, an object of a class by its attributes.
    """
    hashed = xxhash.xxh3_64()
    _feed(hashed, value, depth)
    return str(hashed.hexdigest())


def _text(hashed: Any, text: str) -> None:
    hashed.update(text.encode("utf-8", "surrogatepass"))


def _feed(hashed: Any, value: Any, depth: int) -> None:
    _text(hashed, f"<{type(value).__module__}.{type(value).__qualname__}>")
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        _text(hashed, repr(value))
    elif isinstance(value, (bytes, bytearray)):
        hashed.update(bytes(value))
    elif isinstance(value, np.generic):
        _text(hashed, repr(value.item()))
    elif isinstance(value, np.ndarray):
        _feed_array(hashed, value, depth)
    elif isinstance(value, torch.Tensor):
        _feed_tensor(hashed, value)
    elif isinstance(value, GENERATORS):
        hashed.update(generator_state(value))
    elif isinstance(value, _BY_NAME):
        _text(hashed, str(getattr(value, "__qualname__", getattr(value, "__name__", ""))))
    elif depth > 0:
        _feed_parts(hashed, value, depth)


def _feed_parts(hashed: Any, value: Any, depth: int) -> None:
    if isinstance(value, (set, frozenset)):
        for code in sorted(digest(item, depth - 1) for item in value):
            _text(hashed, code)
    elif isinstance(value, dict):
        _text(hashed, str(len(value)))
        for key, item in list(value.items())[:_ITEMS]:
            _feed(hashed, key, depth - 1)
            _feed(hashed, item, depth - 1)
    elif isinstance(value, (list, tuple, deque)):
        value = list(value) if isinstance(value, deque) else value
        _text(hashed, str(len(value)))
        chosen = value if len(value) <= _ITEMS else [*value[: _ITEMS // 2], *value[-_ITEMS // 2 :]]
        for item in chosen:
            _feed(hashed, item, depth - 1)
    else:
        attributes = attributes_of(value)
        if attributes and type(value).__module__.partition(".")[0] not in _OPAQUE:
            _feed_parts(hashed, attributes, depth)


def attributes_of(value: Any) -> dict[str, Any]:
    """An object's own attributes, also those in slots."""
    return {**(references.attributes_of(value) or {}), **references.slots_of(value)}


def _feed_array(hashed: Any, array: np.ndarray[Any, Any], depth: int) -> None:
    _text(hashed, f"{array.dtype}{array.shape}")
    if array.dtype.hasobject:
        _feed_parts(hashed, array.ravel()[:_ITEMS].tolist(), depth)
        return
    flat = array.reshape(-1) if array.flags.c_contiguous else array.flat
    if array.nbytes > _WHOLE_BYTES:
        flat = flat[:: max(1, array.size // _SAMPLE)]
    hashed.update(np.ascontiguousarray(flat[:] if isinstance(flat, np.flatiter) else flat).tobytes())


def _feed_tensor(hashed: Any, tensor: torch.Tensor) -> None:
    _text(hashed, f"{tensor.dtype}{tuple(tensor.shape)}")
    if tensor.layout != torch.strided or tensor.device.type != "cpu" or not tensor.numel():
        return
    flat = tensor.detach().resolve_conj().resolve_neg()
    if tensor.numel() * tensor.element_size() > _WHOLE_BYTES:
        if not flat.is_contiguous():
            return
        flat = flat.view(-1)[:: max(1, tensor.numel() // _SAMPLE)]
    hashed.update(flat.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def generator_state(generator: Any) -> bytes:
    """The state of any library's random generator, as bytes that can be compared."""
    if isinstance(generator, np.random.Generator):
        return repr(generator.bit_generator.state).encode()
    if isinstance(generator, np.random.RandomState):
        return repr(generator.get_state(legacy=False)).encode()
    if isinstance(generator, torch.Generator):
        return generator.get_state().numpy().tobytes() if generator.device.type == "cpu" else b""
    return b"" if isinstance(generator, random.SystemRandom) else repr(generator.getstate()).encode()
