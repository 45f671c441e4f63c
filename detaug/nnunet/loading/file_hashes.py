"""What tells one content of a file from another: its ends, or SHA-256 of the whole, kept in the user's cache."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import platformdirs

from detaug.ledger.receipt import sha256_of
from detaug.reports.atomic_files import write_text

#: Set to 1, a training's data are known by all bytes of their files.
VARIABLE = "DETAUG_HASH_DATA"
#: With what a fingerprint of such data begins.
MARK = "sha256:"


def hash_of(file: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits. The file is read again when its path, size or times have changed; a disk that
    returns other bytes by itself changes none of these: remove the folder ``data`` of detaug's cache to have all read.

    Raises:
        OSError: it cannot be read.
    """
    known = file.stat()
    # The time of the last change of the inode as well: copying a file over another can restore the one, not the other.
    key = f"{file.resolve()}\n{known.st_size}\n{known.st_mtime_ns}\n{known.st_ctime_ns}"
    place = platformdirs.user_cache_path("detaug", appauthor=False) / "data" / sha256(os.fsencode(key)).hexdigest()
    try:
        found = place.read_text()
        if len(found) == 64:
            return found
    except (OSError, ValueError):
        pass
    found = sha256_of(file)
    try:
        place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_text(place, found)
    except OSError:  # a cache that cannot be written saves nothing
        pass
    return found


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
