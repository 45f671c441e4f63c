"""Whether the transforms' kernels are compiled already, found out without Numba and without touching a file.

`detaug.kernels.compiling` decides where compiled code is kept; importing it takes a second and makes the folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path
from typing import Any

import detaug

_KERNELS = Path(detaug.__file__).parent / "kernels"


def kernel_cache() -> dict[str, Any]:
    """The cache's folder (the user's home as ``~``), whether it can be written, how many kernels there are, how many
    of them are compiled for this Python, and whether that is all (``warm``)."""
    folder = cache_folder()
    modules = sorted(file.stem for file in _KERNELS.glob("*.py"))
    kernels = sum(len(re.findall(r"^@kernel\(", _source(module), re.MULTILINE)) for module in modules)
    compiled = sum(_compiled(folder / source_digest(module), module) for module in modules)
    return {
        "folder": without_home(folder),
        "writable": can_be_written(folder),
        "kernels": kernels,
        "compiled": min(compiled, kernels),
        "warm": compiled >= kernels,
    }


def cache_folder() -> Path:
    """As `detaug.kernels.compiling.cache_folder`."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        return Path(chosen) / "detaug"
    beside = _KERNELS / "__pycache__" / "compiled"
    if can_be_written(beside):
        return beside
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "detaug"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "detaug"


def source_digest(module: str) -> str:
    """As `detaug.kernels.compiling.source_digest`: of a module's source and of the kernels' modules it imports."""
    found: dict[str, str] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = _source(name)
            waiting += re.findall(r"^from detaug\.kernels\.(\w+) import", found[name], re.MULTILINE)
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + found[name].encode() + b"\0")
    return digest.hexdigest()


def can_be_written(folder: Path) -> bool:
    """Whether files can be made in the folder, or the folder where it is not there yet."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def without_home(path: Path) -> str:
    """The path with ``~`` for the user's home, whose name is nobody's business in a bug report."""
    try:
        return str(Path("~") / path.relative_to(Path.home()))
    except (ValueError, RuntimeError):
        return str(path)


def _source(module: str) -> str:
    return (_KERNELS / f"{module}.py").read_bytes().decode()


def _compiled(folder: Path, module: str) -> int:
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    return len({file.name for file in folder.glob(f"*/{module}.*-*.{version}.nbi")})
