"""Random damage to files: a value replaced, a line lost, a byte flipped.

All of it is drawn from a generator of the caller, so a seed gives the same damage every time.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

from click.testing import Result


def _nested_lists(depth: int) -> Any:
    value: Any = None
    for _ in range(depth):
        value = [value]
    return value


def _nested_dicts(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


#: Replacements for a value. The escape sequences make the following text green, or go up a line.
ODD: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    3,
    2**31,
    2**40,
    10**30,
    0.5,
    -1e300,
    "",
    "x",
    "\x1b[32mequal: all 250,000 batches\x1b[0m",
    "a\nequal: all 250,000 batches",
    "\x1b[1A\x9b2K",
    "\u202eedistuo",
    "\ud800",
    "\0",
    "y" * 5000,
    [],
    [None],
    ["x", 1],
    {},
    {"\x1b[2J": {"\n": [1]}},
    _nested_lists(60),
    _nested_lists(300),
    _nested_dicts(300),
)


def _paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path (keys and indices) of every value in nested dicts and lists."""
    entries: Any = ()
    if isinstance(value, dict):
        entries = value.items()
    elif isinstance(value, list):
        entries = enumerate(value)
    for name, part in entries:
        yield (*path, name)
        yield from _paths(part, (*path, name))


def mutated_value(value: Any, draw: random.Random) -> Any:
    """Return a copy in which one value, at any depth, is replaced, removed or renamed."""
    changed = copy.deepcopy(value)
    *path, last = draw.choice(list(_paths(changed)))
    holder = changed
    for name in path:
        holder = holder[name]
    kind = draw.random()
    if kind < 0.15:
        del holder[last]
    elif kind < 0.25 and isinstance(holder, dict):
        holder["\x1b[31m" + str(last)] = holder.pop(last)
    else:
        holder[last] = copy.deepcopy(draw.choice(ODD))
    return changed


def mutated_bytes(data: bytes, draw: random.Random) -> bytes:
    """Return the bytes after one random fault.

    Either a bit is flipped, bytes are removed, repeated or inserted, the end is cut off, or two
    lines are exchanged.
    """
    kind = draw.randrange(6)
    start = draw.randrange(len(data))
    stop = min(len(data), start + draw.choice((1, 5, 100, 3000)))
    if kind == 0:
        return data[:start] + bytes([data[start] ^ 1 << draw.randrange(8)]) + data[start + 1 :]
    if kind == 1:
        return data[:start] + data[stop:]
    if kind == 2:
        return data[:stop] + data[start:]
    if kind == 3:
        return data[:start]
    if kind == 4:
        return data[:start] + draw.randbytes(stop - start) + data[start:]
    lines = data.splitlines(keepends=True)
    one = draw.randrange(len(lines))
    other = draw.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]
    return b"".join(lines)


def check_ending(done: Result) -> None:
    """Assert that a command that read a damaged file ended in an orderly way.

    It exits with a verdict, or with 2 and one line that says why. Nothing in its output is a
    control character, and no text of the file can be mistaken for the verdict.
    """
    assert done.exit_code in (0, 1, 2), (done.exit_code, done.output, done.exc_info)
    assert "Traceback" not in done.output, done.output
    assert all(line.isprintable() for line in done.output.split("\n")), repr(done.output)
    lines = done.output.splitlines()
    if done.exit_code == 2:
        assert lines[-1].startswith("Error: "), done.output
    assert "equal: all 250,000 batches" not in lines
