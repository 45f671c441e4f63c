"""Why a pipeline cannot be copied, or an attribute not be kept, and what to do instead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from detaug.processes.control import is_standard_stream
from detaug.purity.reducing import LOCKS
from detaug.purity.references import is_the_users_own, parts_of, walk
from detaug.purity.template import CannotCopy, Template

_FIRST_USE = "Open or make such an object on first use, in the process that uses it"
#: Handles whose descriptors or locks lie in compiled code, by the names of their classes; all others have ``fileno``.
_HANDLES = {
    **dict.fromkeys(("sqlite3.Connection", "sqlite3.Cursor", "sqlite3.Blob"), "a database connection"),
    **dict.fromkeys(("h5py._hl.base.HLObject", "h5py._objects.ObjectID"), "an open file"),
    **dict.fromkeys(("tables.file.File", "netCDF4._netCDF4.Dataset"), "an open file"),
    **dict.fromkeys(
        ("lmdb.Environment", "lmdb.cpython.Environment", "lmdb.cffi.Environment"), "a database environment"
    ),
    "_multiprocessing.SemLock": "a lock of several processes",
}


class _Culprit(NamedTuple):
    """What cannot be copied: the user's attribute that it lies in, or itself (then `name` is empty), and why."""

    path: str
    value: Any
    name: str
    error: BaseException


def why_not(
    roots: Mapping[str, Any], keep: Collection[str], error: BaseException, works: Callable[[Collection[str]], bool]
) -> str:
    """Which part of a pipeline cannot be copied, why, and what to do.

    Args:
        roots: "transform" and "data_loader".
        error: what copying the whole raised.
        works: whether the pipeline can be copied with these names in `keep`.
    """
    names = [*keep]
    culprits: list[_Culprit] = []
    while (found := _culprit_in(roots, names)) is not None:
        culprits.append(found)
        if not found.name or found.name in names:
            break
        names.append(found.name)
    path, value, _, cause = culprits[0] if culprits else _Culprit("data_loader", roots["data_loader"], "", error)
    keep_it = ""
    if culprits and not any(any(_held_open(each.path, each.value)) for each in culprits) and works(names):
        keep_it = (
            f", or pass keep={tuple(names)!r}: it is then shared with every copy as it is, and batches may depend on each "
            "other through it"
        )
    name, _, rest = path.partition(".")
    of_root = f"in {type(roots[name]).__qualname__}, " if rest else ""
    make_it = ", pass a callable that makes the loader" if name.startswith("data_loader") else ""
    return (
        f"{path} ({of_root}of type {_name_of(type(value))}) cannot be copied: {cause}. "
        f"Every stream and every batch starts from a copy of the pipeline as you passed it. {_FIRST_USE}{make_it}{keep_it}."
    )


def check_kept(kept: Mapping[str, Any]) -> None:
    """Attributes (by path) that are not copied: CannotCopy where forks would share a file's position, a socket or a lock."""
    for path, value in kept.items():
        for where, part, what in _held_open(path, value):
            raise CannotCopy(
                f"{path} cannot be kept: {where} (of type {_name_of(type(part))}) is {what}. Workers are forks of this process "
                "and would use it together, each moving it under the others, which gives wrong data. "
                f"{_FIRST_USE}, and keep None in the attribute until then; keep= may name it all the same."
            )


def _held_open(path: str, value: Any) -> Iterator[tuple[str, Any, str]]:
    """What a process would share with its forks below a value: (path, object, what that is)."""

    def is_looked_into(part: Any) -> bool:
        return type(part).__module__ != "logging" and not is_standard_stream(part)

    for where, part in walk({path: value}, into=is_looked_into):
        if (what := _shared_by_forks(part)) is not None:
            yield where, part, what


def _shared_by_forks(value: Any) -> str | None:
    if is_standard_stream(value):
        return None
    for kind in type(value).__mro__:
        if (what := _HANDLES.get(_name_of(kind))) is not None:
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


def _name_of(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _culprit_in(roots: Mapping[str, Any], keep: Collection[str]) -> _Culprit | None:
    for name, root in roots.items():
        if (error := _copy_error(root, keep)) is not None:
            return _culprit_below(name, root, error, keep)
    return None


def _culprit_below(path: str, value: Any, error: BaseException, keep: Collection[str]) -> _Culprit:
    """The user's own attribute (or an item of it) that leads to the deepest part that cannot be copied: below it the path leads
    through a library's private names. Where nothing on the way is the user's, it ends where names do."""
    users = named = _Culprit(path, value, "", error)
    name, inside = "", False
    for _ in range(16):
        for label, part in parts_of(value):
            if label.removeprefix(".") not in keep and (part_error := _copy_error(part, keep)) is not None:
                break
        else:
            break
        attribute = label.removeprefix(".") if label.removeprefix(".").isidentifier() else ""
        if is_the_users_own(value):
            name, inside = attribute, True
        elif not label.startswith("["):
            inside = False
        path, value, error = path + label, part, part_error
        if inside:
            users = _Culprit(path, part, name, error)
        if "~" not in path:
            named = _Culprit(path, part, attribute, error)
    return (users if "." in users.path else named)._replace(error=error)


def _copy_error(value: Any, keep: Collection[str]) -> BaseException | None:
    try:
        Template(value, keep=keep).copy(only_one=True)
    except Exception as error:
        return error
    return None
