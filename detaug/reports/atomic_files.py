"""Files that are there whole or not at all, whenever the process or the machine stops."""

from __future__ import annotations

import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write a text file (UTF-8) under another name first, so that a reader finds the old file or the new one.

    Raises:
        OSError: it cannot be written; what was there before is still there.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
