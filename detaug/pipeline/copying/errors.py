"""Why a pipeline cannot be copied, or an attribute not be kept, and what to do instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from detaug.objects.references import home_of, is_the_users_own
from detaug.objects.walking import walk
from detaug.pipeline.copying.reducers import LOCKS
from detaug.pipeline.copying.snapshot import CannotCopy
from detaug.system.processes import is_standard_stream

_FIRST_USE = "Open or make such an object on first use, in the process that uses it"
#: Handles whose descriptors or locks lie in compiled code, by the names of their classes; all
#: others have ``fileno``.
_HANDLES = {
    "a database connection": ("sqlite3.Connection", "sqlite3.Cursor", "sqlite3.Blob"),
    "an open file": (
        *("h5py._hl.base.HLObject", "h5py._objects.ObjectID"),
        *("tables.file.File", "netCDF4._netCDF4.Dataset"),
    ),
    "a database environment": (
        "lmdb.Environment",
        "lmdb.cpython.Environment",
        "lmdb.cffi.Environment",
    ),
    "a lock of several processes": ("_multiprocessing.SemLock",),
}


def why_not(roots: Mapping[str, Any], keep: Collection[str], error: BaseException) -> str:
    """Which part of a pipeline ("transform" and "data_loader") cannot be copied, why, and what to
    do. `error` is what copying it raised.
    """
    culprit = error.value if isinstance(error, CannotCopy) else roots["data_loader"]
    path, value, label = _users_part(culprit, roots)
    keep_it = ""
    if label.isidentifier() and not any(_held_open(path, value)):
        keep_it = (
            f", or pass keep={(*keep, label)!r}: it is then shared with every copy as it is, and "
            "batches may depend on each "
            "other through it"
        )
    name, _, rest = path.partition(".")
    of_root = f"in {type(roots[name]).__qualname__}, " if rest else ""
    make_it = ", pass a callable that makes the loader" if name.startswith("data_loader") else ""
    return (
        f"{path} ({of_root}of type {home_of(type(value))}) cannot be copied: {error}. "
        "Every stream and every batch starts from a copy of the pipeline as you passed it. "
        f"{_FIRST_USE}{make_it}{keep_it}."
    )


def _users_part(culprit: Any, roots: Mapping[str, Any]) -> tuple[str, Any, str]:
    """(path, object, the path's last name) of the last of the user's own attributes that lead to
    it: below that, it leads through a library's private names. Where none is the user's, of the
    last that has a name.
    """
    way: list[tuple[str, Any]] = []
    for path, value in walk(roots.items()):
        way.append((path, value))
        if value is culprit:
            break
    else:  # it was made while it was pickled
        return "data_loader", roots["data_loader"], ""
    way = [
        each for each in way if path == each[0] or path.startswith((each[0] + ".", each[0] + "["))
    ]
    named = [place for place in range(len(way)) if "~" not in way[place][0]]
    users = [place for place in named[1:] if is_the_users_own(way[place - 1][1])]
    place = (users or named)[-1]
    here, value = way[place]
    return here, value, here.removeprefix(way[place - 1][0] + ".") if place else ""


def check_kept(kept: Mapping[str, Any]) -> None:
    """Attributes (by path) that are not copied: CannotCopy where forks would share a file's
    position, a socket or a lock.
    """
    for path, value in kept.items():
        for where, part, what in _held_open(path, value):
            raise CannotCopy(
                f"{path} cannot be kept: {where} (of type {home_of(type(part))}) is {what}. "
                "Workers are forks of this process "
                "and would use it together, each moving it under the others, which gives wrong "
                "data. "
                f"{_FIRST_USE}, and keep None in the attribute until then; keep= may name it all "
                "the same."
            )


def _held_open(path: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    """What a process would share with its forks below a value: (path, object, what that is)."""

    def is_looked_into(part: Any) -> bool:
        return type(part).__module__ != "logging" and not is_standard_stream(part)

    for where, part in walk([(path, value)], into=is_looked_into):
        if (what := _shared_by_forks(part)) is not None:
            yield where, part, what


def _shared_by_forks(value: Any) -> str | None:
    if is_standard_stream(value):
        return None
    kinds = {home_of(kind) for kind in type(value).__mro__}
    for what, names in _HANDLES.items():
        if kinds.intersection(names):
            return what
    if isinstance(value, LOCKS):
        free = value.acquire(blocking=False)
        if free:
            value.release()
        return None if free else "a lock that is held"
    if not callable(getattr(type(value), "fileno", None)):
        return None
    try:
        return "an open file or socket" if value.fileno() >= 0 else None
    except Exception:  # closed, or in memory
        return None
