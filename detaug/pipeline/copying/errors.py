"""Messages about what cannot be copied, or carried from copy to copy, and what to do instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from detaug.objects.references import home_of, is_the_users_own
from detaug.objects.walking import walk
from detaug.pipeline.copying.snapshot import CannotCopy
from detaug.system.processes import is_standard_stream

_FIRST_USE = "Open or make such an object on first use, in the process that uses it"
#: Handles whose descriptors or locks lie in compiled code, by the names of their classes; all
#: others have ``fileno``.
_HANDLES = {
    "a database connection": ("sqlite3.Connection", "sqlite3.Cursor", "sqlite3.Blob"),
    "an open file": (
        "h5py._hl.base.HLObject",
        "h5py._objects.ObjectID",
        "tables.file.File",
        "netCDF4._netCDF4.Dataset",
    ),
    "a database environment": (
        "lmdb.Environment",
        "lmdb.cpython.Environment",
        "lmdb.cffi.Environment",
    ),
    "a lock of several processes": ("_multiprocessing.SemLock",),
}


def uncopyable_message(roots: Mapping[str, Any], keep: Collection[str], error: Exception) -> str:
    """Return a message that names the part of a pipeline that cannot be copied, with advice.

    Args:
        roots: the pipeline's parts, "transform" and "data_loader".
        keep: the names of attributes that are not copied already.
        error: the exception that copying the pipeline raised.
    """
    culprit = error.value if isinstance(error, CannotCopy) else roots["data_loader"]
    path, value, label = _users_part(culprit, roots)
    name, _, rest = path.partition(".")
    of_root = ""
    if rest:
        of_root = f"in {type(roots[name]).__qualname__}, "
    make_it = ""
    if name.startswith("data_loader"):
        make_it = ", pass a callable that makes the loader"
    keep_it = ""
    if label.isidentifier() and not any(_held_open(path, value)):
        keep_it = (
            f", or pass keep={(*keep, label)!r}: it is then shared with every copy as it is, and "
            "batches may depend on each other through it"
        )
    return (
        f"{path} ({of_root}of type {home_of(type(value))}) cannot be copied: {error}. "
        "Every stream and every batch starts from a copy of the pipeline as you passed it. "
        f"{_FIRST_USE}{make_it}{keep_it}."
    )


def _users_part(culprit: Any, roots: Mapping[str, Any]) -> tuple[str, Any, str]:
    """Return (path, object, label) of the innermost of the user's own attributes around an object.

    Below that attribute the path leads through a library's private names. If no attribute is the
    user's, the innermost one that has a name is returned. The label is the path's last name.
    """
    edges: list[tuple[str, Any]] = []
    culprit_path = None
    for path, value in walk(roots.items()):
        edges.append((path, value))
        if value is culprit:
            culprit_path = path
            break
    if culprit_path is None:
        # It was made while it was pickled.
        return "data_loader", roots["data_loader"], ""
    # The objects on the way to it, the outermost first.
    chain = [edge for edge in edges if _is_at_or_below(culprit_path, edge[0])]
    # "~" stands in the path of a part that has no name.
    named = [index for index, (path, _) in enumerate(chain) if "~" not in path]
    users = []
    for index in named[1:]:
        # An attribute is the user's if the object that has it is.
        _, owner = chain[index - 1]
        if is_the_users_own(owner):
            users.append(index)
    index = (users or named)[-1]
    path, value = chain[index]
    if index == 0:
        return path, value, ""
    owner_path = chain[index - 1][0]
    return path, value, path.removeprefix(owner_path + ".")


def _is_at_or_below(path: str, owner_path: str) -> bool:
    return path == owner_path or path.startswith((owner_path + ".", owner_path + "["))


def check_carried(attributes: Mapping[str, Any]) -> None:
    """Raise an error if forks would share a file's position, a socket or an inter-process lock.

    Args:
        attributes: the attributes that are not copied, by path.

    Raises:
        CannotCopy: an attribute holds such an object.
    """
    for path, value in attributes.items():
        for part_path, part, kind in _held_open(path, value):
            raise CannotCopy(
                f"{path} cannot be kept: {part_path} (of type {home_of(type(part))}) is {kind}. "
                "Workers are forks of this process and would share it: each would move its "
                f"position for all others, and read wrong data. {_FIRST_USE}, and set the "
                "attribute to None until then; keep= may still name it."
            )


def _held_open(path: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    """Yield (path, object, kind) of each object below a value that forks would share."""
    for part_path, part in walk([(path, value)], into=_is_looked_into):
        kind = _kind_of_handle(part)
        if kind is not None:
            yield part_path, part, kind


def _is_looked_into(value: Any) -> bool:
    return type(value).__module__ != "logging" and not is_standard_stream(value)


def _kind_of_handle(value: Any) -> str | None:
    """Return what an object is that forks would share, in words; None for any other object."""
    if is_standard_stream(value):
        return None
    # Classes are compared by name, so that no library is imported for it.
    class_names = {home_of(base) for base in type(value).__mro__}
    for kind, names in _HANDLES.items():
        if class_names.intersection(names):
            return kind
    if _has_open_descriptor(value):
        return "an open file or socket"
    return None


def _has_open_descriptor(value: Any) -> bool:
    if not callable(getattr(type(value), "fileno", None)):
        return False
    try:
        return bool(value.fileno() >= 0)
    except Exception:
        # It is closed, or a file in memory.
        return False
