"""`fingerprint`: a stable hash of a batch's keys, types, dtypes, shapes and bytes.

XXH3-128 over an encoding in which every value is preceded by its type and every variable length by
its count, so that two values share an encoding only if they are equal. Neither hash order, nor
addresses, nor pickles enter it: it holds across processes, machines and Python versions. All NaNs
of a dtype count as one, for their other bits depend on CPU and compiler.

The run-time check, ledgers and `verify` all compare batches by it. An object of another class
enters as its class and the parts that pickle would make it of, which are the same in every process
that has the same versions of its library.
"""

from __future__ import annotations

import copyreg
import dataclasses
import enum
import math
import struct
import sys
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np
import xxhash

from detaug.objects.walking import attributes_of

if TYPE_CHECKING:
    import torch

_Update = Callable[[Any], Any]
#: Numbers are searched for NaNs in blocks of this many bytes: a block is still in the CPU's cache
#: when it is hashed.
_BYTES_AT_A_TIME = 2**19
_DECIMAL_BITS = 14_280
#: How deep objects may lie in each other: beyond that Python's own stack would be the limit.
_DEEPEST = 40
_HALF = (0x7C00, 0x7E00)
_SINGLE = (0x7F800000, 0x7FC00000)
_DOUBLE = (0x7FF0000000000000, 0x7FF8000000000000)
#: By dtype: the bits of infinity (of the largest number, if it has no infinity), and those of the
#: NaN that counts for all.
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
    """Return 32 hexadecimal digits that are equal if and only if two batches are.

    Batches are equal if their keys, types, dtypes, shapes and bytes are. All NaNs of a dtype are
    equal. The order of a dict's keys does not count. ``1``, ``1.0``, ``True`` and ``np.int64(1)``
    all differ, as do an array and a tensor, and a list and a tuple.

    Of a subclass of arrays or tensors, the class and the bytes count, and its attributes do not. Of
    a masked array, the mask and the values that are not masked count, and the fill value where it
    shows. Bytes between the fields of an aligned structure do not count.

    Args:
        batch: nested dict / list / tuple / set of numpy arrays, torch tensors (on any device),
            numpy and Python scalars, str, bytes, None, and objects that pickle takes apart, such
            as a pandas DataFrame.

    Raises:
        TypeError: a value has no part that would be the same in another process; the message names
            its path.
    """
    return _hashed(batch, _Objects())


def lenient_fingerprint(value: Any) -> str:
    """Return a fingerprint in which an object that cannot be compared counts by its class alone.

    Of a value that cannot be read at all it is "not comparable".
    """
    try:
        return _hashed(value, _Objects(strict=False))
    except Exception:
        # A user's class may raise anything.
        return "not comparable"


def fingerprint_or_none(value: Any) -> str | None:
    """Return a value's fingerprint; None if nothing of it is the same in another process."""
    try:
        return fingerprint(value)
    except Exception:
        # A user's class may raise anything.
        return None


def _hashed(value: Any, objects: _Objects) -> str:
    digest = xxhash.xxh3_128()
    try:
        _Encoder(digest.update, objects).feed(value, "batch")
    except RecursionError:
        raise TypeError(
            "cannot fingerprint batch: it is nested too deep, or holds itself"
        ) from None
    return str(digest.hexdigest())


def dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values of a quantized, sparse or nested tensor as a strided one."""
    import torch

    tensor = tensor.detach()
    if tensor.is_nested:
        parts = [part.reshape(-1) for part in tensor.unbind()]
        return torch.cat(parts)
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    return tensor


def _is_of(library: str, value: Any, *names: str) -> bool:
    """Return whether a value is an instance of these classes of a library.

    Libraries take long to import: if one is not loaded, no value is an instance of its classes.
    """
    module = sys.modules.get(library)
    classes = tuple(getattr(module, name, ()) for name in names)
    return isinstance(value, classes)


def _parts_of_table(table: Any) -> list[Any]:
    """Return the labels, dtypes and values of a pandas DataFrame, Series or Index."""
    if table.ndim == 2:
        # Columns are taken by position, because two may have the same label.
        columns = []
        for index in range(table.shape[1]):
            columns.append(_values_of_column(table.iloc[:, index]))
        return [table.columns, table.index, columns]
    # Only a Series has `index`; an Index may have several levels with a name each.
    if hasattr(type(table), "index"):
        return [table.name, table.index, _values_of_column(table)]
    return [list(table.names), _values_of_column(table)]


def _values_of_column(column: Any) -> list[Any]:
    dtype = column.dtype
    if isinstance(dtype, np.dtype):
        values = column.to_numpy()
    else:
        values = column.to_numpy(dtype=object)
    categories = getattr(dtype, "categories", None)
    is_ordered = getattr(dtype, "ordered", None)
    return [str(dtype), categories, is_ordered, values]


class _Objects:
    """Digests of objects that have no encoding of their own, each taken once in a fingerprint.

    Objects may lead round in circles, and to each other many times over.

    Args:
        strict: an object that cannot be compared raises a TypeError; otherwise its class counts.
    """

    def __init__(self, strict: bool = True) -> None:
        self._strict = strict
        self._digests: dict[int, str] = {}
        #: The ids of the objects around the current one, the outermost first.
        self._open: list[int] = []
        # An object that is made on the way keeps its address only while it lives.
        self._alive: list[Any] = []

    def digest_of(self, value: Any, where: str) -> str:
        """Return the digest of an object's parts."""
        key = id(value)
        if key in self._digests:
            return self._digests[key]
        if key in self._open:
            return f"the object {len(self._open) - self._open.index(key)} above"
        try:
            parts = self._parts_of(value, where)
        except TypeError:
            # Only of this object: the rest of the value is still compared.
            if self._strict:
                raise
            return "not comparable"
        self._alive += [value, parts]
        # Each object has its own digest, so that an object in two places is encoded once.
        self._open.append(key)
        digest = xxhash.xxh3_128()
        encoder = _Encoder(digest.update, self)
        for index, part in enumerate(parts):
            encoder.feed(part, f"{where}.__reduce_ex__()[{index}]")
        self._open.pop()
        self._digests[key] = digest.hexdigest()
        return self._digests[key]

    def _parts_of(self, value: Any, where: str) -> list[Any]:
        """Return what pickle would make an object of, else its attributes."""
        if len(self._open) == _DEEPEST:
            raise TypeError(
                f"cannot fingerprint {where}: more than {_DEEPEST} objects lie in each other"
            )
        # An object that cannot be pickled is compared by its attributes.
        with suppress(Exception):
            reduce = copyreg.dispatch_table.get(type(value))
            reduced: Any = reduce(value) if reduce else value.__reduce_ex__(4)
            if isinstance(reduced, str):
                return [reduced]
            # The first entry, the function that makes the object, follows from its class and is
            # left out. The last three entries may be missing.
            arguments, state, items, pairs = (*reduced[1:5], None, None, None)[:4]
            if items:
                items = list(items)
            if pairs:
                pairs = dict(pairs)
            parts = (arguments, state, items, pairs)
            return [part for part in parts if part is not None]
        attributes = attributes_of(value)
        if attributes is None:
            raise TypeError(
                f"cannot fingerprint {where}: {type(value).__module__}.{type(value).__qualname__} "
                "has no bytes that are the same in every process and Python version"
            )
        return [attributes]


class _Encoder:
    """A writer of the encoding of values.

    Args:
        update: called with the bytes, in order.
        objects: the digests of objects without an encoding of their own.
    """

    def __init__(self, update: _Update, objects: _Objects) -> None:
        self._update = update
        self._objects = objects

    def feed(self, value: Any, where: str) -> None:
        """Write a value; `where`, its path, is for messages."""
        if isinstance(value, np.ndarray):
            self._feed_array(value, where)
        elif _is_of("torch", value, "Tensor"):
            self._feed_tensor(value, where)
        elif isinstance(value, dict):
            self._tag("dict", value, dict)
            self._feed_pairs(list(value.items()), where)
        elif isinstance(value, (list, tuple)):
            name = "list" if isinstance(value, list) else "tuple"
            self._tag(name, value, list, tuple)
            self._count(len(value))
            for i, item in enumerate(value):
                self.feed(item, f"{where}[{i}]")
        elif isinstance(value, (set, frozenset)):
            name = "set" if isinstance(value, set) else "frozenset"
            self._tag(name, value, set, frozenset)
            self._count(len(value))
            # Sorted by encoding: a set's order depends on hashes, which differ between processes.
            codes = [self._encoded(item, where) for item in value]
            for code in sorted(codes):
                self._update(code)
        elif not self._feed_scalar(value, where):
            self._feed_object(value, where)

    def _feed_pairs(self, pairs: list[tuple[Any, Any]], where: str) -> None:
        # In the order of the keys' encodings: a dict's own order does not count.
        self._count(len(pairs))
        encoded = []
        for key, item in pairs:
            encoded.append((self._encoded(key, f"{where}.keys()"), key, item))
        encoded.sort(key=lambda entry: entry[0])
        for code, key, item in encoded:
            self._update(code)
            self.feed(item, f"{where}[{key!r}]")

    def _encoded(self, value: Any, where: str) -> bytes:
        parts: list[bytes] = []

        def add(data: Any) -> None:
            parts.append(bytes(data))

        _Encoder(add, self._objects).feed(value, where)
        return b"".join(parts)

    def _tag(self, name: str, value: Any, *bases: type) -> None:
        """Write the value's type. A subclass (OrderedDict, a named tuple) is another type."""
        kind = type(value)
        if kind not in bases:
            name = f"{name}:{kind.__module__}.{kind.__qualname__}"
        self._text(name)

    def _count(self, number: int) -> None:
        self._update(struct.pack("<Q", number))

    def _text(self, text: str) -> None:
        data = text.encode("utf-8", "surrogatepass")
        self._count(len(data))
        self._update(data)

    def _shape(self, dtype: str, shape: tuple[int, ...]) -> None:
        self._text(dtype)
        self._count(len(shape))
        for size in shape:
            self._count(size)

    # --- arrays and tensors

    def _feed_array(self, array: np.ndarray[Any, Any], where: str) -> None:
        self._tag("ndarray", array, np.ndarray)
        self._shape(_dtype_name(array.dtype), array.shape)
        # NumPy imports `numpy.ma` on first use, 40 ms in every worker. If it is not loaded there is
        # no masked array.
        if "numpy.ma" in sys.modules and isinstance(array, np.ma.MaskedArray):
            self._feed_array(np.ma.getmaskarray(array), where)
            array = array.filled()
        if array.dtype.hasobject:
            self._feed_objects(array, where)
        elif array.nbytes:
            self._feed_bytes(array, where)

    def _feed_objects(self, array: np.ndarray[Any, Any], where: str) -> None:
        if array.dtype.names is not None:
            for name in array.dtype.names:
                self._feed_array(array[name], f"{where}[{name!r}]")
            return
        for i, item in enumerate(array.ravel()):
            self.feed(item, f"{where}.flat[{i}]")

    def _feed_bytes(self, array: np.ndarray[Any, Any], where: str) -> None:
        """Write the bytes in C order, with zeros for padding bytes and one NaN for all NaNs."""
        plain = np.asarray(array)
        flat = np.ascontiguousarray(plain).reshape(-1)
        if flat.dtype.names is not None:
            if _holds_long_doubles(flat.dtype):
                for name in flat.dtype.names:
                    self._feed_array(flat[name], f"{where}[{name!r}]")
                return
            self._update(_cleaned(flat).view(np.uint8).data)
        elif flat.dtype.char in _LONG:
            for part in _parts_of_long_doubles(flat):
                self._feed_array(part, where)
        elif flat.dtype.kind in "fc":
            # A complex number is two numbers.
            numbers = flat.view(flat.real.dtype)
            bits = numbers.view(numbers.dtype.str.replace("f", "u"))
            self._feed_numbers(bits, *_NANS[numbers.dtype.char])
        else:
            self._update(flat.view(np.uint8).data)

    def _feed_numbers(self, bits: np.ndarray[Any, Any], infinity: int, nan: int) -> None:
        """Write the bytes of floating-point numbers; those of every NaN are replaced by `nan`."""
        # Compared as integers: without the sign, the bits of every NaN are above infinity's.
        sign = 1 << (8 * bits.itemsize - 1)
        magnitude = bits.dtype.type(sign - 1)
        step = _BYTES_AT_A_TIME // bits.itemsize
        for start in range(0, len(bits), step):
            block = bits[start : start + step]
            nans = (block & magnitude) > infinity
            if nans.any():
                block = np.where(nans, block.dtype.type(nan), block)
            self._update(block.view(np.uint8).data)

    def _feed_tensor(self, tensor: torch.Tensor, where: str) -> None:
        import torch

        self._tag("tensor", tensor, torch.Tensor)
        is_strided = tensor.layout == torch.strided and not tensor.is_nested
        if not is_strided or tensor.is_quantized or tensor.is_meta:
            self._feed_unusual_tensor(tensor, where)
            return
        dtype = str(tensor.dtype)
        self._shape(dtype, tensor.shape)
        if not tensor.numel():
            return
        # A subclass may do something else in each of these operations; what counts is its bytes.
        with torch._C.DisableTorchFunctionSubclass():
            # A conjugated or negated tensor may be a marked view, with other values in memory.
            plain = tensor.detach().cpu().resolve_conj().resolve_neg()
            data = plain.contiguous().reshape(-1).view(torch.uint8).numpy()
        if dtype in _NANS:
            num_parts = 2 if tensor.dtype.is_complex else 1
            bits = data.view(f"u{tensor.element_size() // num_parts}")
            self._feed_numbers(bits, *_NANS[dtype])
        else:
            self._update(data.data)

    def _feed_unusual_tensor(self, tensor: torch.Tensor, where: str) -> None:
        """Write a tensor without plain bytes: its layout, and its values as a strided one."""
        self._text(f"{tensor.layout} {tensor.dtype}")
        if tensor.is_meta:
            self._shape("meta", tensor.shape)
        elif tensor.is_nested:
            parts = tensor.unbind()
            self._count(len(parts))
            for index, part in enumerate(parts):
                self._feed_tensor(part, f"{where}[{index}]")
        else:
            self._feed_tensor(dense(tensor), where)

    # --- any other value

    def _feed_scalar(self, value: Any, where: str) -> bool:
        """Write a value without parts, or of a data class; return whether it was one."""
        # From the narrowest class on: NumPy's float64 is a float, an Enum may be an int.
        if isinstance(value, np.generic):
            self._text("scalar")
            self._feed_array(np.asarray(value), where)
        elif isinstance(value, enum.Enum):
            self._tag("enum", value, enum.Enum)
            self._text(value.name)
        elif value is None or isinstance(value, bool):
            self._text(repr(value))
        elif isinstance(value, (int, float, complex)):
            self._feed_number(value)
        elif isinstance(value, str):
            self._tag("str", value, str)
            self._text(value)
        elif isinstance(value, (bytes, bytearray)):
            self._tag(type(value).__name__, value, type(value))
            self._count(len(value))
            self._update(bytes(value))
        elif isinstance(value, PurePath):
            self._text("path")
            self._text(value.as_posix())
        elif _is_of("torch", value, "dtype", "device"):
            self._text(str(value))
        elif dataclasses.is_dataclass(value) and not isinstance(value, type):
            self._feed_dataclass(value, where)
        else:
            return False
        return True

    def _feed_number(self, value: int | float | complex) -> None:
        if isinstance(value, int):
            self._tag("int", value, int)
            # Python refuses to write longer ones in decimal digits.
            if value.bit_length() <= _DECIMAL_BITS:
                self._text(str(int(value)))
            else:
                self._text(hex(value))
        elif isinstance(value, float):
            self._tag("float", value, float)
            self._feed_float(value)
        else:
            self._tag("complex", value, complex)
            self._feed_float(value.real)
            self._feed_float(value.imag)

    def _feed_dataclass(self, value: Any, where: str) -> None:
        self._tag("dataclass", value, object)
        for field in dataclasses.fields(value):
            self._text(field.name)
            self.feed(getattr(value, field.name), f"{where}.{field.name}")

    def _feed_float(self, number: float) -> None:
        if math.isnan(number):
            # One NaN for all: their bits differ.
            number = math.nan
        self._update(struct.pack("<d", number))

    def _feed_object(self, value: Any, where: str) -> None:
        if isinstance(value, _BY_NAME):
            self._tag("name", value, object)
            self._text(f"{value.__module__}.{value.__qualname__}")
            return
        self._tag("object", value, object)
        if _is_of("pandas", value, "DataFrame", "Series", "Index"):
            # Two tables with the same values may be kept in different blocks of memory.
            self.feed(_parts_of_table(value), where)
            return
        self._text(self._objects.digest_of(value, where))


#: Objects of the program, which are compared by their names.
_BY_NAME = (type, types.FunctionType, types.BuiltinFunctionType)
#: Characters of dtypes whose bytes differ from platform to platform.
_LONG = "gG"


def _holds_long_doubles(dtype: np.dtype[Any]) -> bool:
    if dtype.names is not None:
        return any(_holds_long_doubles(dtype[name]) for name in dtype.names)
    return dtype.base.char in _LONG


# The difference of two infinities is invalid, and NaN in every process.
@np.errstate(invalid="ignore")
def _parts_of_long_doubles(array: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    """Return mantissas, as sums of two float64, and exponents."""
    # Not the bytes: some of a long double's bytes are padding, with any contents.
    mantissas, exponents = np.frexp([array.real, array.imag])
    rounded = mantissas.astype(np.float64)
    return [rounded, (mantissas - rounded).astype(np.float64), exponents]


def _cleaned(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy with zeros for padding bytes, and with one NaN for all NaNs."""
    clean = np.zeros(array.shape, array.dtype)
    for name in array.dtype.names or ():
        clean[name] = _cleaned(array[name])
    if array.dtype.names is None:
        clean[...] = array
        if array.dtype.kind in "fc":
            numbers = clean.view(clean.real.dtype)
            numbers[np.isnan(numbers)] = math.nan
    return clean


def _dtype_name(dtype: np.dtype[Any]) -> str:
    if dtype.fields is None:
        return dtype.str
    try:
        return repr(dtype.descr)
    except ValueError:
        # Fields overlap, or are in another order.
        fields = []
        for name in dtype.names or ():
            kind, offset = dtype.fields[name][:2]
            fields.append((name, _dtype_name(kind), offset))
        return repr((fields, dtype.itemsize))
