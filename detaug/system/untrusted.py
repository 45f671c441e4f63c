"""Files that somebody else may have written: read with limits, and looked at before they are used.

Whatever is in them ends in a ValueError or an OSError at worst, not in memory that grows, a call
that never returns, or an error of the code that uses them.
"""

from __future__ import annotations

import errno
import json
import os
import stat
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, BinaryIO, Union, get_args, get_origin

#: Bytes of a line. A ledger's longest is its header, with the description of a pipeline.
_MOST_BYTES = 1 << 26
#: How deep containers may lie in one another, and how many values may lie in them.
_MOST_DEPTH = 100
_MOST_VALUES = 1_000_000


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading.

    Raises:
        OSError: it is anything else, such as a device without an end.
    """
    # O_NONBLOCK: to open a pipe without a writer would wait for one. Opened before it is looked at:
    # another file could take the name between the two.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", os.fspath(path))
    return os.fdopen(descriptor, "rb")


def lines_of(path: Path) -> Iterator[bytes]:
    """Yield a file's lines, with their line feeds; the last one may have none.

    Raises:
        ValueError: a line has more than 64 MiB.
        OSError: the file cannot be read, or is no regular one.
    """
    with open_regular(path) as file:
        while True:
            line = file.readline(_MOST_BYTES + 1)
            if not line:
                return
            if len(line) > _MOST_BYTES:
                raise ValueError(f"it has a line of more than {_MOST_BYTES >> 20} MiB")
            yield line


def parse_json(text: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, or nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def is_small(value: Any) -> bool:
    """Return True if containers lie at most 100 deep in one another, with at most a million values.

    The limits also end the count if a container holds itself, and if containers that are shared
    again and again multiply the values.
    """
    # Level by level, not recursively: Python's own stack would end before the limit does.
    level = [value]
    num_values = 0
    for _ in range(_MOST_DEPTH):
        num_values += len(level)
        level = list(chain.from_iterable(map(_parts, level)))
        if not level:
            return True
        if num_values + len(level) > _MOST_VALUES:
            return False
    return False


def _parts(value: Any) -> Iterator[Any]:
    """Yield the values within a container; none of anything else."""
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, (list, tuple, set, frozenset)):
        yield from value


def conforms(value: Any, kind: Any) -> bool:
    """Return True if a value is of a kind, such as ``dict[str, list[int]]``, down to its elements.

    `kind` is a class, Any, None, a union, or a list or dict of such kinds. A bool is no int.
    """
    if kind is Any:
        return True
    if kind is None:
        kind = NoneType
    origin = get_origin(kind)
    arguments = get_args(kind)
    if origin in (Union, UnionType):
        return any(conforms(value, one) for one in arguments)
    if origin is list:
        return isinstance(value, list) and all(conforms(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, Mapping) and all(
            conforms(name, arguments[0]) and conforms(item, arguments[1])
            for name, item in value.items()
        )
    return isinstance(value, kind) and not (kind is int and isinstance(value, bool))
