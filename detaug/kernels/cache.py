"""The place of compiled kernels, for code that compiles and for code that only asks.

It does not import Numba.

Compiled code lies in a folder for each module's source digest, below the first of these that can be
written to: ``NUMBA_CACHE_DIR`` if that is set, else the package itself, else (a read-only
installation) the user's cache folder; then a folder of this user's own among the temporary files.

Compiled code is run as it is found. So the folder must be this user's own, and closed to all
others. The package's own folder is not looked at: whoever can write there can write to the modules
next to it, which are run as well.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import stat
import sys
import tempfile
import threading
from pathlib import Path

logger = logging.getLogger("detaug")

_SOURCES = Path(__file__).parent
_PACKAGE_FOLDER = _SOURCES / "__pycache__" / "compiled"

#: Set when a warning on the cache was logged.
_has_warned = threading.Event()


def warn_once(text: str, *arguments: object) -> None:
    """Log a warning on the cache, once in a process and its forks: all kernels share one cache."""
    if _has_warned.is_set():
        return
    _has_warned.set()
    logger.warning(text, *arguments)


def cache_folder() -> Path | None:
    """Return the folder; None where there is none: every process then compiles its own kernels.

    It is made where it is missing. A folder in which others could plant code is passed over, with a
    warning.
    """
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    folder: Path | None
    if chosen:
        folder = Path(chosen) / "detaug"
    elif _can_be_written(_PACKAGE_FOLDER):
        return _PACKAGE_FOLDER
    else:
        folder = _users_folder()
    if folder is None:
        return _private_folder()
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        danger = _danger_in(folder)
    except OSError:
        return _private_folder()
    if not danger and _can_be_written(folder):
        return folder
    private = _private_folder()
    if not danger:
        return private
    warn_once(
        "compiled kernels are not kept in %s: %s, and whoever writes there could run code as you."
        " They are kept %s. Set NUMBA_CACHE_DIR to a folder that is yours alone.",
        folder,
        danger,
        "in memory alone" if private is None else f"in {private}",
    )
    return private


def _can_be_written(folder: Path) -> bool:
    """Return True if a file can be made in the folder.

    Makes the folder, and for a moment the file.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # By writing: permissions do not show that a file system is mounted read-only.
        probe = folder / f".probe-{os.getpid()}-{threading.get_ident()}"
        probe.touch()
        probe.unlink()
    except OSError:
        return False
    return True


def _danger_in(folder: Path) -> str:
    """Return how others could write into a folder, or "". Closes the folder to readers as well.

    A link is followed if this user laid it, or root, who can run code as everybody.
    """
    if not hasattr(os, "geteuid"):
        # Windows: a user's folders are closed to others, and modes say nothing.
        return ""
    user = os.geteuid()
    owner = folder.stat().st_uid
    if not {folder.lstat().st_uid, owner} <= {user, 0}:
        return "it belongs to another user"
    mode = folder.stat().st_mode
    if mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"other users can write to it (mode {stat.S_IMODE(mode):04o})"
    for parent in folder.resolve().parents:
        mode = parent.stat().st_mode
        # In a sticky folder such as /tmp nobody can put another folder in the place of this one.
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            return f"all users can write to {parent} (mode {stat.S_IMODE(mode):04o})"
    if owner == user:
        folder.chmod(0o700)
    return ""


def _users_folder() -> Path | None:
    """Return the folder among the user's caches; None where there is no home."""
    chosen = os.environ.get("XDG_CACHE_HOME", "").strip()
    if not chosen and sys.platform == "darwin":
        chosen = "~/Library/Caches"
    elif not chosen and sys.platform == "win32":
        chosen = os.environ.get("LOCALAPPDATA", "~/AppData/Local")
    elif not chosen:
        chosen = "~/.cache"
    folder = Path(os.path.expanduser(chosen)) / "detaug"
    if not folder.is_absolute():
        return None
    return folder


def _private_folder() -> Path | None:
    """Return the folder among the temporary files; None: it is another user's, or open to them."""
    if not hasattr(os, "geteuid"):
        return None
    try:
        private = Path(tempfile.gettempdir()) / f"detaug-{os.geteuid()}"
        private.mkdir(mode=0o700, exist_ok=True)
        status = private.lstat()
    except OSError:
        return None
    is_own = stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()
    if not is_own or status.st_mode & 0o077:
        return None
    return private


def source_digest(module: str) -> str:
    """Return a digest of a kernel module's source and of those it imports from this package.

    It is a part of the cache's path, for Numba by itself does not notice that a function which a
    kernel calls has changed in another file.
    """
    sources: dict[str, bytes] = {}
    pending = [module]
    while pending:
        name = pending.pop()
        if name in sources:
            continue
        # Imports are found in the text: `count_kernels` must not import Numba.
        sources[name] = (_SOURCES / f"{name}.py").read_bytes()
        text = sources[name].decode()
        pending += re.findall(r"^from detaug\.kernels\.(\w+) import", text, re.MULTILINE)
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(sources):
        digest.update(name.encode() + b"\0" + sources[name] + b"\0")
    return digest.hexdigest()


def bring_compiled(digest: str, folder: Path) -> None:
    """Copy code that was compiled into the package before that became read-only.

    `detaug warmup` in a container's image does so.
    """
    source = _PACKAGE_FOLDER / digest
    target = folder / digest
    if folder == _PACKAGE_FOLDER or target.exists() or not source.is_dir():
        return
    if _can_be_written(_PACKAGE_FOLDER):
        return
    partial = folder / f"{digest}.{os.getpid()}-{threading.get_ident()}"
    try:
        # Copied beside the target and renamed, so that no process loads half of it.
        shutil.copytree(source, partial)
        partial.rename(target)
    except OSError:
        # Another process was first, or the disk is full: Numba compiles what it does not find.
        shutil.rmtree(partial, ignore_errors=True)


def count_kernels(folder: Path | None) -> tuple[int, int]:
    """Return the number of kernels, and of those that are compiled in a folder.

    They are compiled for this source and this Python.
    """
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    kernels = 0
    compiled = 0
    for source in _SOURCES.glob("*.py"):
        kernels += len(re.findall(r"^@kernel\(", source.read_text(encoding="utf-8"), re.MULTILINE))
        if folder is not None:
            files = (folder / source_digest(source.stem)).glob(f"*/{source.stem}.*-*.{version}.nbi")
            compiled += len({file.name for file in files})
    return kernels, min(compiled, kernels)
