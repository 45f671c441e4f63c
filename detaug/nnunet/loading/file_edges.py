"""What tells one content of a file from another without reading all of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_EDGE = 64 * 1024


def add_edges(state: Any, file: Path) -> None:
    """Update a hash with a file's name, its size, and its first and last 64 kB."""
    size = file.stat().st_size
    state.update(f"{file.name}:{size}".encode())
    with open(file, "rb") as stream:
        state.update(stream.read(_EDGE))
        if size > 2 * _EDGE:
            stream.seek(size - _EDGE)
        state.update(stream.read(_EDGE))
