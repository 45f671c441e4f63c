"""Whether the transforms' kernels are compiled already, found out without Numba and without touching a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from detaug.kernels.cache import cache_folder, count_kernels, seems_writable


def kernel_cache() -> dict[str, Any]:
    """The cache's folder (the user's home as ``~``; None where there is none), whether it can be written, how many kernels
    there are, how many of them are compiled for this Python, and whether that is all (``warm``)."""
    folder = cache_folder(seems_writable)
    kernels, compiled = count_kernels(folder)
    return {
        "folder": None if folder is None else without_home(folder),
        "writable": folder is not None,
        "kernels": kernels,
        "compiled": compiled,
        "warm": compiled >= kernels,
    }


def without_home(path: Path) -> str:
    """The path with ``~`` for the user's home, whose name does not belong in a bug report."""
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)
