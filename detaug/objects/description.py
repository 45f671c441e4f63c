"""A pipeline's description, which state dicts are compared by: classes and declared arguments.

Pickle bytes are no identity: they change with caches and library versions. A declared argument is
an argument of ``__init__`` that the object keeps under the same name, or with underscores before
it. An object whose class has no text here is described by its class and its declared arguments.

Two pipelines that were constructed alike have the same description in every process: it holds no
address, no hash order and no default ``repr``. The order of a dict counts, since a loader may
enumerate its keys; the order of a set does not.

The cost is bounded. Long containers and arrays are described by a digest. The digest of an array
beyond 64 kB covers 17 blocks of 4 kB, the digest of a long list covers 10,000 items; both are
evenly spaced. Memory maps are described by their shape.
"""

from __future__ import annotations

import array as arrays
import datetime
import decimal
import enum
import fractions
import functools
import inspect
import mmap
import operator
import re
import sys
import types
import uuid
from collections import UserDict, UserList, deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Any

import numpy as np
import torch
import xxhash

from detaug.objects.differences import differences as differences_of
from detaug.objects.differences import values_by_name
from detaug.objects.fingerprints import fingerprint
from detaug.objects.walking import Edge, attributes_of, slots_of
from detaug.seeding.generators import GENERATORS
from detaug.system.escaping import printable

#: How many differences a message names.
_MOST_NAMED = 5
_MOST_LEVELS = 24
_MOST_VALUES = 50_000
_MOST_LINES = 2_000
_MOST_ITEMS = 10_000
_LONGEST_LIST = 64
_LONGEST_TEXT = 2_000
_SMALL_ARRAY = 64
_DECIMAL_BITS = 4_000
_WHOLE_BYTES = 65_536
_BLOCKS = 16
_BLOCK_BYTES = 4_096

_NOT_DECLARED = ("self", "args", "kwargs", "rng")
_MRI = "detaug.transforms.mri."
_FLAT = {str, bytes, bool, int, float, complex, type(None)}
_DICTS = (dict, UserDict, types.MappingProxyType)
_LISTS = (list, tuple, deque, UserList)
_CALLS = (operator.itemgetter, operator.attrgetter, operator.methodcaller)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, functools._lru_cache_wrapper)
_BYTES = (bytearray, memoryview, arrays.array)
_BY_REPR = (
    decimal.Decimal,
    fractions.Fraction,
    uuid.UUID,
    range,
    datetime.date,
    datetime.timedelta,
)
_BY_STR = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.qscheme,
    np.dtype,
)
#: Modules of the classes in `_BY_REPR`; a subclass elsewhere is free to write its address.
_STANDARD = {kind.__module__ for kind in _BY_REPR}
#: Described by their class: their state moves on, and they are seeded for every batch.
_GENERATORS = (*GENERATORS, np.random.SeedSequence)
#: Integers that hold the bits of a dtype that NumPy lacks, by its size in bytes.
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}

_Array = np.ndarray[Any, Any]
#: The ids of the objects on the way down, so that cycles end.
_Above = tuple[int, ...]


def describe(value: Any, name: str) -> list[str]:
    """Return a line ``path = text`` for each object and each declared argument in a value.

    Args:
        value: the object.
        name: the name that paths begin with.
    """
    lines = list(_Walk().lines(value, name, ()))
    # All lines count, though not all are kept: state dicts stay small.
    rest = lines[_MOST_LINES:]
    if rest:
        lines[_MOST_LINES:] = [f"{name} (rest) = {len(rest)} lines, {_digest(rest)}"]
    return lines


def differences(current: list[str], saved: list[str]) -> str:
    """Return the first lines in which two descriptions differ, in words for an error message.

    Args:
        current: the description of the pipeline here.
        saved: the one in a state dict.
    """
    current_values = values_by_name(current)
    saved_values = values_by_name(saved)
    changes = list(differences_of(current_values, saved_values))
    if not changes and current != saved:
        return "the same parameters in another order, such as the keys of a dict"
    lines = []
    for path, value, saved_value in changes[:_MOST_NAMED]:
        lines.append(f"{path}: here {value}, in the state {saved_value}")
    if len(changes) > _MOST_NAMED:
        lines.append(f"and {len(changes) - _MOST_NAMED} more")
    # A state dict may be somebody else's, and its text reaches the terminal in a traceback.
    return printable("; ".join(lines))


class _Walk:
    """A walk over what objects declare.

    `detaug.objects.walking.walk` yields every object once. A description shows the declared
    arguments at each of their paths, even if two paths lead to one object.
    """

    def __init__(self) -> None:
        self._values_left = _MOST_VALUES

    def lines(self, value: Any, path: str, above: _Above) -> Iterator[str]:
        if id(value) in above:
            yield f"{path} = {_class_name(value)} that holds this"
            return
        self._values_left -= 1
        # Values without parts are described even beyond the limits: they cost nothing.
        text = _text_or_short_list(value)
        if text is not None:
            yield f"{path} = {text}"
            return
        if self._values_left < 0 or len(above) >= _MOST_LEVELS:
            yield f"{path} = {_class_name(value)}"
            return
        above = (*above, id(value))
        if isinstance(value, np.ndarray):
            # An array of objects: all others have a text.
            yield f"{path} = {_array_text(value)}"
            yield self._digest_line(list(value.flat), path, above)
        elif isinstance(value, (set, frozenset)):
            yield f"{path} = {_class_name(value)} of {len(value)}: {self._set_text(value, above)}"
        elif isinstance(value, (*_DICTS, *_LISTS)):
            flat = _flat_text(value)
            yield f"{path} = {flat or f'{_class_name(value)} of {len(value)}'}"
            if flat is None:
                yield from self._lines_of_items(value, path, above)
            yield from self._lines_of(_declared(value), path, above)
        else:
            length = ""
            if isinstance(value, Mapping):
                # Only its length: a mapping may load an item from disk.
                length = f" of {len(value)}"
            yield f"{path} = {_class_name(value)}{length}"
            yield from self._lines_of(_declared(value), path, above)

    def _lines_of(self, parts: Iterable[Edge], path: str, above: _Above) -> Iterator[str]:
        for label, part in parts:
            yield from self.lines(part, path + label, above)

    def _lines_of_items(self, container: Any, path: str, above: _Above) -> Iterator[str]:
        is_long = len(container) > _LONGEST_LIST
        fields = getattr(type(container), "_fields", None)
        if isinstance(container, _DICTS):
            pairs = list(self._pairs(container, above))
            if is_long:
                yield self._digest_line(pairs, path, above)
                return
            parts = [(f"[{key}]", item) for key, item in pairs]
        elif isinstance(container, tuple) and fields is not None:
            labels = [f".{name}" for name in fields]
            parts = list(zip(labels, container, strict=False))
        elif is_long:
            yield self._digest_line(list(container), path, above)
            return
        else:
            parts = [(f"[{index}]", item) for index, item in enumerate(container)]
        yield from self._lines_of(parts, path, above)

    def _pairs(self, mapping: Any, above: _Above) -> Iterator[Edge]:
        numbered = list(enumerate(mapping.items()))
        for number, (key, item) in _spaced(numbered):
            yield self._key(key, number, above), item

    def _key(self, key: Any, number: int, above: _Above) -> str:
        """Return a key's text; for one without a text its class and position."""
        if isinstance(key, (tuple, frozenset)):
            lines = self.lines(key, "", above)
            return " ".join(lines).removeprefix(" = ")
        text = _text(key)
        if text is None:
            return f"{_class_name(key)} #{number}"
        return text

    def _set_text(self, elements: Any, above: _Above) -> str:
        # Neither hashes nor addresses order elements alike in every process: their texts do.
        texts = [" ".join(self.lines(item, "", above)) for item in _spaced(list(elements))]
        inside = ", ".join(sorted(texts))
        return _shortened(f"{{{inside}}}")

    def _digest_line(self, items: list[Any], path: str, above: _Above) -> str:
        lines: list[str] = []
        for item in _spaced(items):
            lines += self.lines(item, "", above)
        return f"{path}[:] = {_digest(lines)}"


# --- what an object declares ---


def _declared(value: Any) -> Iterator[Edge]:
    """Yield an object's declared arguments by their labels in a path."""
    if isinstance(value, functools.partial):
        yield ".func", value.func
        yield ".args", value.args
        yield ".keywords", value.keywords
    elif isinstance(value, types.MethodType):
        yield ".__func__", value.__func__
        yield ".__self__", value.__self__
    elif isinstance(value, _CALLS):
        yield ".args", value.__reduce__()[1]
    elif isinstance(value, slice):
        yield ".start", value.start
        yield ".stop", value.stop
        yield ".step", value.step
    elif _is_hugging_face_table(value):
        yield from _parts_of_table(value)
    else:
        yield from _arguments_kept(value)


def _arguments_kept(value: Any) -> Iterator[Edge]:
    declared = set()
    # Not `getattr`, which would call properties.
    attributes = {**slots_of(value), **(attributes_of(value) or {})}
    # Of base classes as well: a subclass may pass its arguments on as **kwargs.
    for owner in type(value).__mro__:
        constructor = vars(owner).get("__init__")
        if not isinstance(constructor, types.FunctionType):
            continue
        for name in _argument_names(constructor):
            if name in declared or name in _NOT_DECLARED:
                continue
            # Python stores ``self.__name`` under this name in the class `owner`.
            mangled = f"_{owner.__name__.lstrip('_')}__{name}"
            for attribute in (name, f"_{name}", mangled):
                if attribute in attributes:
                    declared.add(name)
                    yield f".{name}", attributes[attribute]
                    break


@functools.lru_cache(maxsize=1024)
def _argument_names(constructor: types.FunctionType) -> tuple[str, ...]:
    try:
        return tuple(inspect.signature(constructor).parameters)
    except (ValueError, TypeError):
        return ()


def _is_hugging_face_table(value: Any) -> bool:
    # Classes are compared by name, so that the library is not imported for it.
    names = [(kind.__module__, kind.__name__) for kind in type(value).__mro__]
    return ("datasets.arrow_dataset", "Dataset") in names


def _parts_of_table(table: Any) -> Iterator[Edge]:
    """Yield the columns and row indices of a Hugging Face data set.

    Its own fingerprint may be random, and its info names paths of this machine.
    """
    yield ".num_rows", table.num_rows
    features = {name: str(feature) for name, feature in table.features.items()}
    yield ".features", features
    if table._indices is not None:
        rows = _spaced(list(range(table.num_rows)), most=1000)
        indices = table._indices.column(0).take(rows)
        yield ".indices", indices.to_pylist()


# --- texts ---


def _class_name(value: Any) -> str:
    return _full_name(type(value))


def _full_name(code: Any) -> str:
    module = getattr(code, "__module__", None) or "builtins"
    if module.startswith(_MRI):
        # State dicts named these classes before they had a package of their own.
        module = module.replace(".mri.", ".")
    if module == "__mp_main__":
        module = "__main__"
    return f"{module}.{code.__qualname__}"


def _text_or_short_list(value: Any, nested: int = 1) -> str | None:
    """Return the text of a value without parts, or of a short list of such; else None."""
    text = _text(value)
    if text is not None:
        return text
    if type(value) not in (list, tuple) or len(value) > _LONGEST_LIST:
        return None
    texts = []
    for item in value:
        text = _text_or_short_list(item, nested - 1) if nested else _text(item)
        if text is None:
            return None
        texts.append(text)
    inside = ", ".join(texts)
    if type(value) is list:
        return f"[{inside}]"
    return f"({inside})"


def _flat_text(value: Any) -> str | None:
    """Return one text for a long container of plain values; None for any other value."""
    if type(value) not in (list, tuple, dict) or len(value) <= _LONGEST_LIST:
        return None
    # With `map`: a loop over a million items would take long.
    kinds = set(map(type, value))
    if isinstance(value, dict):
        kinds |= set(map(type, value.values()))
    if not kinds <= _FLAT:
        return None
    return f"{_class_name(value)} of {len(value)}, {_digest([repr(value)])}"


def _text(value: Any) -> str | None:
    """Return the text of a value without parts; None for any other value."""
    for text_of in (
        _text_of_scalar,
        _text_of_standard_value,
        _text_of_array_value,
        _text_of_callable,
    ):
        text = text_of(value)
        if text is not None:
            return text
    return None


def _text_of_scalar(value: Any) -> str | None:
    # From the narrowest class on: an Enum may be an int, and NumPy's float64 is a float.
    if value is None or isinstance(value, bool):
        return repr(value)
    if type(value) is str:
        return _shortened(repr(value))
    if isinstance(value, enum.Enum):
        return _text_of_enum(value)
    if isinstance(value, np.generic):
        return _text_of_numpy_scalar(value)
    return _text_of_number_or_bytes(value)


def _text_of_enum(value: enum.Enum) -> str:
    if value.name:
        return f"{_class_name(value)}.{value.name}"
    # No flag is set.
    return f"{_class_name(value)}({_text(value.value)})"


def _text_of_number_or_bytes(value: Any) -> str | None:
    if isinstance(value, int):
        is_long = value.bit_length() > _DECIMAL_BITS
        return _shortened(hex(value) if is_long else int.__repr__(value))
    for kind in (float, complex, str, bytes):
        if isinstance(value, kind):
            # Not the object's own `__repr__`: a subclass may write its address.
            return _shortened(kind.__repr__(value))
    if isinstance(value, _BYTES):
        return _shortened(f"{_class_name(value)}({bytes(value)!r})")
    return None


def _text_of_numpy_scalar(value: np.generic) -> str | None:
    item = value.item()
    if isinstance(item, (bool, int, float, complex, str, bytes)):
        return _text_of_scalar(item)
    if value.dtype.hasobject:
        return None
    return f"{value.dtype} {value!s}"


def _text_of_standard_value(value: Any) -> str | None:
    """Return the text of a value of Python's standard library."""
    if isinstance(value, PurePath):
        return f"Path({value.as_posix()!r})"
    if isinstance(value, (datetime.datetime, datetime.time)):
        return _text_of_time(value)
    top = type(value).__module__.partition(".")[0]
    if isinstance(value, _BY_REPR) and top in _STANDARD:
        return repr(value)
    if isinstance(value, re.Pattern):
        return f"{_class_name(value)}({value.pattern!r}, {value.flags})"
    if isinstance(value, slice):
        return _text_of_slice(value)
    return None


def _text_of_slice(value: slice) -> str | None:
    texts = []
    for end in (value.start, value.stop, value.step):
        text = _text(end)
        if text is None:
            return None
        texts.append(text)
    return f"slice({', '.join(texts)})"


def _text_of_array_value(value: Any) -> str | None:
    """Return the text of an array, a tensor, or a dtype, device or generator."""
    if isinstance(value, _BY_STR):
        return str(value)
    if isinstance(value, _GENERATORS):
        return _class_name(value)
    if isinstance(value, torch.Tensor):
        return _text_of_tensor(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return _array_text(value, _contents(value))
    return None


def _text_of_time(value: datetime.datetime | datetime.time) -> str:
    zone = ""
    if value.tzinfo is not None:
        zone = f", {_class_name(value.tzinfo)} {value.tzname()}"
    return f"{_class_name(value)}({value.isoformat()}{zone})"


def _text_of_callable(value: Any) -> str | None:
    if isinstance(value, type):
        return f"class {_full_name(value)}"
    if isinstance(value, np.ufunc):
        return f"function numpy.{value.__name__}"
    if isinstance(value, _FUNCTIONS):
        return f"function {_full_name(value)}"
    if isinstance(value, types.ModuleType):
        return f"module {value.__name__}"
    return None


def _array_text(value: _Array, contents: str | None = None) -> str:
    text = f"{type(value).__name__} of shape {value.shape}, {value.dtype}"
    if contents is None:
        return text
    return f"{text}, {contents}"


def _contents(value: _Array) -> str | None:
    if is_mapped(value):
        # Reading it may take minutes.
        return None
    # NumPy imports `numpy.ma` on first use. If it is not loaded there is no masked array.
    if "numpy.ma" in sys.modules and isinstance(value, np.ma.MaskedArray):
        return f"{_contents(value.filled())} masked {_contents(np.ma.getmaskarray(value))}"
    kind = value.dtype
    # A long double is written differently by NumPy's versions.
    is_written = kind.kind in "biufcSU" and kind.itemsize <= 16 and kind.char not in "gG"
    if is_written and value.size <= _SMALL_ARRAY:
        return repr(value.tolist())
    # In C order, whatever the strides are. Slices of `flat` are copies.
    flat = np.asarray(value).flat
    if value.nbytes <= _WHOLE_BYTES:
        return f"digest {fingerprint(flat[:])[:16]}"
    # Only parts of a large array are read: a pipeline may hold gigabytes, and is described
    # whenever it is inspected.
    length = max(1, _BLOCK_BYTES // max(1, kind.itemsize))
    last_start = value.size - length
    starts = [block * last_start // _BLOCKS for block in range(_BLOCKS + 1)]
    blocks = [flat[start : start + length] for start in starts]
    return f"digest {fingerprint(blocks)[:16]}"


def is_mapped(value: Any) -> bool:
    """Return whether an array views a file, which may take minutes to read."""
    while isinstance(value, np.ndarray):
        if isinstance(value, np.memmap):
            return True
        value = value.base
    return isinstance(value, mmap.mmap)


def _text_of_tensor(value: torch.Tensor) -> str:
    with torch._C.DisableTorchFunctionSubclass():
        text = f"{type(value).__name__} of shape {tuple(value.shape)}, {value.dtype}"
        if value.layout != torch.strided or value.is_quantized or value.device.type != "cpu":
            return text
        # A class without bytes of its own raises one of these.
        with suppress(TypeError, RuntimeError, KeyError):
            plain = value.detach().resolve_conj().resolve_neg()
            contents = _contents(_as_array(plain))
            if contents is not None:
                return f"{text}, {contents}"
    return text


def _as_array(tensor: torch.Tensor) -> _Array:
    try:
        return tensor.numpy()
    except TypeError:
        # NumPy lacks the dtype.
        return tensor.view(_INTEGERS[tensor.element_size()]).numpy()


def _spaced(items: list[Any], most: int = _MOST_ITEMS) -> list[Any]:
    """Return at most `most` items, evenly spaced, the first and the last among them."""
    if len(items) <= most:
        return items
    last = len(items) - 1
    return [items[number * last // (most - 1)] for number in range(most)]


def _shortened(text: str) -> str:
    """Return a long text as its beginning and a digest."""
    if len(text) <= _LONGEST_TEXT:
        return text
    digest = xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))[:16]
    return f"{text[:60]}… ({len(text)} characters, digest {digest})"


def _digest(texts: Iterable[str]) -> str:
    digest = xxhash.xxh3_128()
    for text in texts:
        digest.update(text.encode("utf-8", "surrogatepass") + b"\0")
    return f"digest {digest.hexdigest()[:16]}"
