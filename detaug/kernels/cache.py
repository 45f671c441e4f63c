"""Where compiled kernels are kept: for the code that compiles and for code that only asks. Does not import Numba.

Compiled code lies in a folder for each module's source digest, below the first of these that can be written to:
``NUMBA_CACHE_DIR`` if that is set, else the package itself, else (a read-only installation) the user's cache folder; then
a folder of this user's own among the temporary files.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import platformdirs

_SOURCES = Path(__file__).parent
_PACKAGE_FOLDER = _SOURCES / "__pycache__" / "compiled"

Judge = Callable[[Path], bool]


def can_be_written(folder: Path) -> bool:
    """Whether a file can be made in the folder; makes the folder, and for a moment the file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}-{threading.get_ident()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def seems_writable(folder: Path) -> bool:
    """The same by what its permissions say, or those of the nearest folder that is there. Touches nothing."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def cache_folder(writable: Judge = can_be_written) -> Path | None:
    """The folder; None where there is none: every process then compiles its own kernels.

    Args:
        writable: `can_be_written`, or `seems_writable` where nothing may be touched.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        places = [Path(chosen) / "detaug"]
    else:
        users = platformdirs.user_cache_path("detaug", appauthor=False)
        places = [_PACKAGE_FOLDER, *([users] if users.is_absolute() else [])]  # it is not, where there is no home
    found = (place for place in places if writable(place))
    return next(found, None) or _private_folder(make=writable is can_be_written)


def _private_folder(make: bool) -> Path | None:
    """Compiled code is run as it is found. So this folder must be the user's and closed to all others."""
    try:
        private = Path(tempfile.gettempdir()) / f"detaug-{os.geteuid()}"
        if make:
            private.mkdir(mode=0o700, exist_ok=True)
        elif not private.exists():
            return private if private.parent.is_dir() and seems_writable(private) else None
        found = private.lstat()
    except OSError:
        return None
    ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    return private if ours else None


def source_digest(module: str) -> str:
    """A digest of a kernel module's source and of those it imports from this package.

    It is a part of the cache's path, for Numba by itself does not notice that a function which a kernel calls has
    changed in another file.
    """
    found: dict[str, bytes] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = (_SOURCES / f"{name}.py").read_bytes()
            waiting += re.findall(r"^from detaug\.kernels\.(\w+) import", found[name].decode(), re.MULTILINE)
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + found[name] + b"\0")
    return digest.hexdigest()


def bring_compiled(digest: str, folder: Path) -> None:
    """Code that was compiled into the package before it became read-only (`detaug warmup` in a container's image)."""
    there, here = _PACKAGE_FOLDER / digest, folder / digest
    if folder == _PACKAGE_FOLDER or here.exists() or not there.is_dir() or can_be_written(_PACKAGE_FOLDER):
        return
    partial = folder / f"{digest}.{os.getpid()}-{threading.get_ident()}"
    try:
        shutil.copytree(there, partial)
        partial.rename(here)
    except OSError:  # another process was first, or the disk is full: Numba compiles what it does not find
        shutil.rmtree(partial, ignore_errors=True)


def count_kernels(folder: Path | None) -> tuple[int, int]:
    """(kernels that there are, those of them that are compiled in that folder for this source and this Python)."""
    modules = sorted(file.stem for file in _SOURCES.glob("*.py"))
    sources = ((_SOURCES / f"{module}.py").read_text(encoding="utf-8") for module in modules)
    kernels = sum(len(re.findall(r"^@kernel\(", source, re.MULTILINE)) for source in sources)
    if folder is None:
        return kernels, 0
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    compiled = 0
    for module in modules:
        files = (folder / source_digest(module)).glob(f"*/{module}.*-*.{version}.nbi")
        compiled += len({file.name for file in files})
    return kernels, min(compiled, kernels)
