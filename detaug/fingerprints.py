"""`fingerprint`: a stable hash of a batch's keys, types, dtypes, shapes and bytes.

XXH3-128 over an encoding in which every value is preceded by its type and every variable length by its count, so that
two values share an encoding only if they are equal. Neither hash order, nor addresses, nor pickles enter it: it holds across
processes, machines and Python versions. All NaNs of a dtype count as one, for their other bits depend on CPU and compiler.
"""

from __future__ import annotations

import dataclasses
import enum
import math
import struct
import sys
from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

if TYPE_CHECKING:
    import torch

_Update = Callable[[Any], Any]
#: What is looked at for NaNs is still in the cache when it is hashed.
_BYTES_AT_A_TIME = 2**19
_DECIMAL_BITS = 14_280
#: By dtype: the bits of infinity (of the largest number, where there is none), and those of the NaN that counts for all.
_HALF, _SINGLE, _DOUBLE = (
    (0x7C00, 0x7E00),
    (0x7F800000, 0x7FC00000),
    (0x7FF0000000000000, 0x7FF8000000000000),
)
_NANS: dict[Any, tuple[int, int]] = {
    "e": _HALF,
    "f": _SINGLE,
    "d": _DOUBLE,
    "torch.float16": _HALF,
    "torch.float32": _SINGLE,
    "torch.float64": _DOUBLE,
    "torch.complex32": _HALF,
    "torch.complex64": _SINGLE,
    "torch.complex128": _DOUBLE,
    "torch.bfloat16": (0x7F80, 0x7FC0),
    "torch.float8_e5m2": (0x7C, 0x7F),
    "torch.float8_e4m3fn": (0x7E, 0x7F),
}


def fingerprint(batch: Any) -> str:
    """32 hexadecimal digits; equal if and only if keys, types, dtypes, shapes and bytes are equal, where all NaNs of a dtype are.

    Args:
        batch: nested dict / list / tuple / set of numpy arrays, torch tensors (on any device), numpy and Python
            scalars, str, bytes, None. Of subclasses of arrays and tensors the class and the bytes count, not their
            attributes; of a masked array the values that are not masked, the mask, and the fill value where it shows;
            bytes between the fields of an aligned structure do not. The order of a dict's keys does not matter; of
            equal numbers, ``1``, ``1.0``, ``True`` and ``np.int64(1)`` all differ, as do an array and a tensor, a list
            and a tuple.

    Raises:
        TypeError: a value of another kind; the message says where it stands.
    """
    digest = xxhash.xxh3_128()
    _feed(digest.update, batch, "batch")
    return str(digest.hexdigest())


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a quantized, sparse or nested tensor as a strided one, which has a fingerprint."""
    import torch

    tensor = tensor.detach()
    if tensor.is_nested:
        return torch.cat([part.reshape(-1) for part in tensor.unbind()])
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    return tensor.to_dense() if tensor.layout != torch.strided else tensor


def _is_torchs(value: Any, *names: str) -> bool:
    """Whether it is an instance of these classes of torch, which takes seconds to import: where it is not loaded, nothing is."""
    return isinstance(value, tuple(getattr(sys.modules.get("torch"), name, ()) for name in names))


def _feed(update: _Update, value: Any, where: str) -> None:
    kind = type(value)
    if kind is np.ndarray or isinstance(value, np.ndarray):
        _feed_array(update, value, where)
    elif _is_torchs(value, "Tensor"):
        _feed_tensor(update, value, where)
    elif isinstance(value, dict):
        _tag(update, "dict", value, dict)
        _count(update, len(value))
        encoded = [(_encoded(key, f"{where}.keys()"), key, item) for key, item in value.items()]
        for code, key, item in sorted(encoded, key=lambda entry: entry[0]):
            update(code)
            _feed(update, item, f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        _tag(update, "list" if isinstance(value, list) else "tuple", value, list, tuple)
        _count(update, len(value))
        for i, item in enumerate(value):
            _feed(update, item, f"{where}[{i}]")
    elif isinstance(value, (set, frozenset)):
        _tag(update, "set" if isinstance(value, set) else "frozenset", value, set, frozenset)
        _count(update, len(value))
        for code in sorted(_encoded(item, where) for item in value):
            update(code)
    else:
        _feed_scalar(update, value, where)


def _encoded(value: Any, where: str) -> bytes:
    parts: list[bytes] = []
    _feed(lambda data: parts.append(bytes(data)), value, where)
    return b"".join(parts)


def _tag(update: _Update, name: str, value: Any, *bases: type) -> None:
    """The value's type. A subclass (OrderedDict, a named tuple) is another type than its base."""
    kind = type(value)
    _text(update, name if kind in bases else f"{name}:{kind.__module__}.{kind.__qualname__}")


def _count(update: _Update, number: int) -> None:
    update(struct.pack("<Q", number))


def _text(update: _Update, text: str) -> None:
    data = text.encode("utf-8", "surrogatepass")
    _count(update, len(data))
    update(data)


def _shape(update: _Update, dtype: str, shape: tuple[int, ...]) -> None:
    _text(update, dtype)
    _count(update, len(shape))
    for size in shape:
        _count(update, size)


def _feed_array(update: _Update, array: np.ndarray[Any, Any], where: str) -> None:
    _tag(update, "ndarray", array, np.ndarray)
    _shape(update, _dtype_name(array.dtype), array.shape)
    # NumPy imports `numpy.ma` on first use, 40 ms in every worker. Where it is not loaded there is no masked array.
    if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):
        _feed_array(update, np.ma.getmaskarray(array), where)
        array = array.filled()
    if array.dtype.hasobject:
        if array.dtype.names is not None:
            raise TypeError(
                f"cannot fingerprint {where}: structured arrays that hold objects have no stable bytes"
            )
        for i, item in enumerate(array.ravel()):
            _feed(update, item, f"{where}.flat[{i}]")
    elif array.nbytes:
        _feed_bytes(update, array, where)


def _feed_bytes(update: _Update, array: np.ndarray[Any, Any], where: str) -> None:
    """The bytes in C order, with zeros for padding bytes, and one NaN for all."""
    flat = np.ascontiguousarray(np.asarray(array)).reshape(-1)
    if flat.dtype.names is not None:
        update(_cleaned(flat, where).view(np.uint8).data)
    elif flat.dtype.kind in "fc":
        numbers = flat.view(flat.real.dtype)  # of a complex number, each part
        _refuse_long(numbers.dtype, where)
        _feed_numbers(
            update, numbers.view(numbers.dtype.str.replace("f", "u")), *_NANS[numbers.dtype.char]
        )
    else:
        update(flat.view(np.uint8).data)


def _cleaned(array: np.ndarray[Any, Any], where: str) -> np.ndarray[Any, Any]:
    """A copy in zeros, so that what lies between the fields of an aligned structure does not count, and with one NaN."""
    clean = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names or ():
        clean[name] = _cleaned(array[name], where)
    if array.dtype.names is None:
        clean[...] = array
        if array.dtype.kind in "fc":
            numbers = clean.view(clean.real.dtype)
            _refuse_long(numbers.dtype, where)
            numbers[np.isnan(numbers)] = math.nan
    return clean


def _refuse_long(dtype: np.dtype[Any], where: str) -> None:
    if dtype.char == "g":
        raise TypeError(
            f"cannot fingerprint {where}: a longdouble has other bytes on every platform; take float64"
        )


def _feed_numbers(update: _Update, bits: np.ndarray[Any, Any], infinity: int, nan: int) -> None:
    """The bits of floating-point numbers, with one NaN's for all."""
    magnitude = bits.dtype.type((1 << 8 * bits.itemsize - 1) - 1)
    for start in range(0, len(bits), step := _BYTES_AT_A_TIME // bits.itemsize):
        block = bits[start : start + step]
        nans = (block & magnitude) > infinity
        if nans.any():
            block = np.where(nans, block.dtype.type(nan), block)
        update(block.view(np.uint8).data)


def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.fields is None:
        return dtype.str
    try:
        return repr(dtype.descr)
    except ValueError:  # fields that overlap or stand in another order
        fields = [
            (name, _dtype_name(dtype.fields[name][0]), dtype.fields[name][1])
            for name in dtype.names or ()
        ]
        return repr((fields, dtype.itemsize))


def _feed_tensor(update: _Update, tensor: torch.Tensor, where: str) -> None:
    import torch

    _tag(update, "tensor", tensor, torch.Tensor)
    if tensor.layout != torch.strided or tensor.is_nested or tensor.is_quantized or tensor.is_meta:
        kind = f"{'nested, ' if tensor.is_nested else ''}{tensor.layout}, {tensor.dtype}, on {tensor.device}"
        raise TypeError(
            f"cannot fingerprint {where}: only dense tensors with plain bytes are supported, and this one is {kind}; take "
            "to_dense(), to_padded_tensor(), int_repr() or dequantize() of what has any"
        )
    dtype = str(tensor.dtype)
    _shape(update, dtype, tensor.shape)
    if tensor.numel():
        # A subclass may do something else in each of these operations; what counts is its bytes.
        with torch._C.DisableTorchFunctionSubclass():
            flat = tensor.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
            data = flat.view(torch.uint8).numpy()
        if dtype in _NANS:
            bits = data.view(f"u{tensor.element_size() // (2 if tensor.dtype.is_complex else 1)}")
            _feed_numbers(update, bits, *_NANS[dtype])
        else:
            update(data.data)


def _feed_scalar(update: _Update, value: Any, where: str) -> None:
    if isinstance(value, np.generic):
        _text(update, "scalar")
        _feed_array(update, np.asarray(value), where)
    elif isinstance(value, enum.Enum):
        _tag(update, "enum", value, enum.Enum)
        _text(update, value.name)
    elif value is None or isinstance(value, bool):
        _text(update, repr(value))
    elif isinstance(value, int):
        _tag(update, "int", value, int)
        # Python refuses to write longer ones in decimal digits.
        _text(update, str(int(value)) if value.bit_length() <= _DECIMAL_BITS else hex(value))
    elif isinstance(value, (float, complex)):
        _tag(update, "float" if isinstance(value, float) else "complex", value, float, complex)
        for part in (value,) if isinstance(value, float) else (value.real, value.imag):
            update(struct.pack("<d", math.nan if math.isnan(part) else part))
    elif isinstance(value, str):
        _tag(update, "str", value, str)
        _text(update, value)
    elif isinstance(value, (bytes, bytearray)):
        _tag(update, type(value).__name__, value, type(value))
        _count(update, len(value))
        update(bytes(value))
    elif isinstance(value, PurePath):
        _text(update, "path")
        _text(update, value.as_posix())
    elif _is_torchs(value, "dtype", "device"):
        _text(update, str(value))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _tag(update, "dataclass", value, object)
        for field in dataclasses.fields(value):
            _text(update, field.name)
            _feed(update, getattr(value, field.name), f"{where}.{field.name}")
    else:
        raise TypeError(
            f"cannot fingerprint {where}: {type(value).__module__}.{type(value).__qualname__} has no bytes that are "
            "the same in every process and Python version"
        )
