"""The texts of single values in a pipeline's description: the same in every process, Python and NumPy version."""

from __future__ import annotations

import array as arrays
import datetime
import decimal
import enum
import fractions
import functools
import mmap
import re
import types
import uuid
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
import xxhash

from detaug.fingerprints import fingerprint
from detaug.seeding.generators import GENERATORS

_Array = np.ndarray[Any, Any]
_MRI = "detaug.transforms.mri."
_LONGEST_TEXT = 2_000
_SMALL_ARRAY = 64
_DECIMAL_BITS = 4_000
_WHOLE_BYTES = 65_536
_BLOCKS, _BLOCK_BYTES = 16, 4_096
_BY_REPR = (
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    range,
    datetime.date,
    datetime.timedelta,
)
_TORCH = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme)
#: Their state moves on; what they are seeded with is the plan's affair.
_GENERATORS = (*GENERATORS, np.random.SeedSequence)


def class_name(value: Any) -> str:
    """Module and name of a value's class."""
    return _full_name(type(value))


def _full_name(thing: Any) -> str:
    module = getattr(thing, "__module__", None) or "builtins"
    if module.startswith(_MRI):  # they had no room of their own when state dicts began to name them
        module = module.replace(".mri.", ".")
    return f"{'__main__' if module == '__mp_main__' else module}.{thing.__qualname__}"


def text_of(value: Any) -> str | None:
    """The text of what has no parts; None for what has."""
    for text in (_of_scalar, _of_library_value, _of_callable):
        found = text(value)
        if found is not None:
            return found
    return None


def short(text: str) -> str:
    """A long text as its beginning and a digest."""
    if len(text) <= _LONGEST_TEXT:
        return text
    digest = xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))[:16]
    return f"{text[:60]}… ({len(text)} characters, digest {digest})"


def _of_scalar(value: Any) -> str | None:
    if value is None or isinstance(value, bool):
        return repr(value)
    if type(value) is str:
        return short(repr(value))
    if isinstance(value, enum.Enum):
        # Combined flags have no name in older Pythons.
        return (
            f"{class_name(value)}.{value.name}"
            if value.name
            else f"{class_name(value)}({text_of(value.value)})"
        )
    if isinstance(value, np.generic):
        return _of_numpy_scalar(value)
    if isinstance(value, int):
        return short(hex(value) if value.bit_length() > _DECIMAL_BITS else int.__repr__(value))
    for kind in (float, complex, str, bytes):
        if isinstance(value, kind):
            return short(kind.__repr__(value))  # a subclass is free to write its address
    if isinstance(value, (bytearray, memoryview, arrays.array)):
        return short(f"{class_name(value)}({bytes(value)!r})")
    return None


def _of_numpy_scalar(value: np.generic) -> str | None:
    item = value.item()
    if isinstance(item, (bool, int, float, complex, str, bytes)):
        return _of_scalar(item)
    return None if value.dtype.hasobject else f"{value.dtype} {value!s}"


def _of_library_value(value: Any) -> str | None:
    if isinstance(value, PurePath):
        return f"Path({value.as_posix()!r})"
    if isinstance(value, (datetime.datetime, datetime.time)):
        zone = value.tzinfo
        return f"{class_name(value)}({value.isoformat()}{'' if zone is None else f', {class_name(zone)} {value.tzname()}'})"
    if isinstance(value, _BY_REPR) and type(value).__module__.partition(".")[0] in _STANDARD:
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"{class_name(value)}({value.pattern!r}, {value.flags})"
    if isinstance(value, slice):
        parts = [text_of(part) for part in (value.start, value.stop, value.step)]
        return None if None in parts else f"slice({', '.join(map(str, parts))})"
    if isinstance(value, (*_TORCH, np.dtype)):
        return str(value)
    if isinstance(value, _GENERATORS):
        return class_name(value)
    if isinstance(value, torch.Tensor):
        return _of_tensor(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return array_text(value, _contents(value))
    return None


_STANDARD = {kind.__module__ for kind in _BY_REPR}


def _of_callable(value: Any) -> str | None:
    if isinstance(value, type):
        return f"class {_full_name(value)}"
    if isinstance(value, np.ufunc):
        return f"function numpy.{value.__name__}"
    if isinstance(
        value, (types.FunctionType, types.BuiltinFunctionType, functools._lru_cache_wrapper)
    ):
        return f"function {_full_name(value)}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    return None


def array_text(value: _Array, contents: str | None) -> str:
    """Class, dtype and shape of an array, and what is known of its contents."""
    return f"{type(value).__name__} of shape {value.shape}, {value.dtype}{'' if contents is None else ', ' + contents}"


def _contents(value: _Array) -> str | None:
    if _is_mapped(value):
        return None  # reading it may take minutes
    if isinstance(value, np.ma.MaskedArray):
        return f"{_contents(value.filled())} masked {_contents(np.ma.getmaskarray(value))}"
    if value.size <= _SMALL_ARRAY and value.dtype.kind in "biufcSU":
        return (
            repr(value.tolist())
            if value.dtype.itemsize <= 16 and value.dtype.char not in "gG"
            else _sample(value)
        )
    return _sample(value)


def _sample(value: _Array) -> str:
    """A digest over all of a small array, over blocks of a large one."""
    flat = np.asarray(
        value
    ).flat  # in C order, wherever the bytes lie; slices of it copy what they hold
    if value.nbytes <= _WHOLE_BYTES:
        return f"digest {fingerprint(flat[:])[:16]}"
    length = max(1, _BLOCK_BYTES // max(1, value.dtype.itemsize))
    starts = [i * (value.size - length) // _BLOCKS for i in range(_BLOCKS + 1)]
    return f"digest {fingerprint([flat[start : start + length] for start in starts])[:16]}"


def _is_mapped(value: Any) -> bool:
    while isinstance(value, np.ndarray):
        if isinstance(value, np.memmap):
            return True
        value = value.base
    return isinstance(value, mmap.mmap)


def _of_tensor(value: torch.Tensor) -> str:
    with torch._C.DisableTorchFunctionSubclass():
        text = f"{type(value).__name__} of shape {tuple(value.shape)}, {value.dtype}"
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            return text
        with suppress(TypeError, RuntimeError, KeyError):  # a class without bytes of its own
            plain = value.detach().resolve_conj().resolve_neg()
            try:
                array = plain.numpy()
            except TypeError:  # a dtype that NumPy lacks
                integer = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[
                    plain.element_size()
                ]
                array = plain.view(integer).numpy()
            return text if (found := _contents(array)) is None else f"{text}, {found}"
    return text
