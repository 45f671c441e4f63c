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
from pathlib import Path

import platformdirs

_SOURCES = Path(__file__).parent
_PACKAGE_FOLDER = _SOURCES / "__pycache__" / "compiled"


def _can_be_written(folder: Path) -> bool:
    """Whether a file can be made in the folder; makes the folder, and for a moment the file."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}-{threading.get_ident()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def cache_folder() -> Path | None:
    """The folder; None where there is none: every process then compiles its own kernels."""
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    if chosen:
        places = [Path(chosen) / "detaug"]
    else:
        users = platformdirs.user_cache_path("detaug", appauthor=False)
        places = [
            _PACKAGE_FOLDER,
            *([users] if users.is_absolute() else []),
        ]  # it is not, where there is no home
    return next(filter(_can_be_written, places), None) or _private_folder()


def _private_folder() -> Path | None:
    """Compiled code is run as it is found. So this folder must be the user's and closed to all others."""
    try:
        private = Path(tempfile.gettempdir()) / f"detaug-{os.geteuid()}"
        private.mkdir(mode=0o700, exist_ok=True)
        found = private.lstat()
    except OSError:
        return None
    ours = (
        stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077
    )
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
            waiting += re.findall(
                r"^from detaug\.kernels\.(\w+) import", found[name].decode(), re.MULTILINE
            )
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(found):
        digest.update(name.encode() + b"\0" + found[name] + b"\0")
    return digest.hexdigest()


def bring_compiled(digest: str, folder: Path) -> None:
    """Code that was compiled into the package before it became read-only (`detaug warmup` in a container's image)."""
    there, here = _PACKAGE_FOLDER / digest, folder / digest
    if (
        folder == _PACKAGE_FOLDER
        or here.exists()
        or not there.is_dir()
        or _can_be_written(_PACKAGE_FOLDER)
    ):
        return
    partial = folder / f"{digest}.{os.getpid()}-{threading.get_ident()}"
    try:
        shutil.copytree(there, partial)
        partial.rename(here)
    except (
        OSError
    ):  # another process was first, or the disk is full: Numba compiles what it does not find
        shutil.rmtree(partial, ignore_errors=True)


def count_kernels(folder: Path | None) -> tuple[int, int]:
    """(kernels that there are, those of them that are compiled in that folder for this source and this Python)."""
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    kernels = compiled = 0
    for source in _SOURCES.glob("*.py"):
        kernels += len(re.findall(r"^@kernel\(", source.read_text(encoding="utf-8"), re.MULTILINE))
        if folder is not None:
            files = (folder / source_digest(source.stem)).glob(f"*/{source.stem}.*-*.{version}.nbi")
            compiled += len({file.name for file in files})
    return kernels, min(compiled, kernels)
