"""Standard output and error of a process that was forked while other threads of the parent may have been printing."""

from __future__ import annotations

import io
import sys
from typing import Any

_replaced: list[Any] = []  # kept for good: closing one would wait for its lock


def renew_standard_streams() -> None:
    """Write to the same files through new objects.

    A thread of the parent that was printing at the moment of the fork holds its stream's lock, and no thread of the child
    will ever release it: the first ``print`` would wait forever. What the parent has not yet written out stays the
    parent's, too. Streams that are no files (a notebook's) are left as they are.
    """
    for name in ("stdout", "stderr"):
        old = getattr(sys, name)
        new = _same_file(old)
        if new is None:
            continue
        _replaced.append(old)
        for attribute in (name, f"__{name}__"):
            if getattr(sys, attribute) is old:
                setattr(sys, attribute, new)
        _redirect_logging(old, new)


def _same_file(old: Any) -> io.TextIOWrapper | None:
    if not isinstance(old, io.TextIOWrapper):
        return None
    try:
        file = open(old.fileno(), "wb", closefd=False)  # noqa: SIM115
    except (OSError, ValueError):  # in memory, or closed
        return None
    # Line by line: a worker may be killed at any moment, and its last words are wanted then.
    return io.TextIOWrapper(file, encoding=old.encoding, errors=old.errors, line_buffering=True)


def _redirect_logging(old: Any, new: io.TextIOWrapper) -> None:
    logging = sys.modules.get("logging")
    if logging is None:
        return
    for reference in list(logging._handlerList):
        handler = reference()
        if getattr(handler, "stream", None) is old:
            handler.stream = new
