"""Classes and functions of the user's script in a batch: sent by name, and found again in the parent.

A fresh interpreter does not run the user's script; cloudpickle sends it the script's classes by value. Sent back by
value, a class would come in as a second one, or overwrite the attributes of the parent's own. So what came from the
parent goes back as a name, and as the number under which cloudpickle tracks it in both processes (for local classes,
which no name finds).
"""

from __future__ import annotations

import contextlib
import sys
import types
import weakref
from collections.abc import Iterable, Iterator
from typing import Any

from cloudpickle import cloudpickle

_SCRIPT = ("__main__", "__mp_main__")

#: Classes that this process itself made and sent by value: the parent knows them only while it holds an instance.
_sent_by_value: weakref.WeakSet[type] = weakref.WeakSet()


def reduce_by_name(obj: Any) -> Any:
    """What pickle is to write for a class or function that only the script has, else NotImplemented."""
    if isinstance(obj, type):
        number = _number_of(obj)
        if number is None or _importable(obj):
            return NotImplemented
        return find, (obj.__module__, obj.__qualname__, number)
    if isinstance(obj, types.FunctionType) and obj.__module__ in _SCRIPT and "<" not in obj.__qualname__:
        return NotImplemented if _importable(obj) else (find, (obj.__module__, obj.__qualname__, None))
    return NotImplemented


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """For objects of classes that a worker itself has made (``namedtuple("Row", ...)`` in the loader): they travel with
    their class, all else by name. Lambdas and local functions stay refused, as everywhere, unless such a class consists
    of them.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._of_classes: set[int] = set()

    def reducer_override(self, obj: Any) -> Any:
        reduced = reduce_by_name(obj)
        if reduced is not NotImplemented:
            return reduced
        if isinstance(obj, (type, types.FunctionType)) and _importable(obj):
            return obj.__qualname__
        if isinstance(obj, type):
            if _number_of(obj) is None:
                _sent_by_value.add(obj)
            self._of_classes.update(map(id, _functions(vars(obj).values())))
        elif isinstance(obj, types.FunctionType) and "<" in obj.__qualname__ and id(obj) not in self._of_classes:
            return NotImplemented
        return super().reducer_override(obj)


def _functions(values: Iterable[Any]) -> Iterator[types.FunctionType]:
    """The functions of a class's dictionary: bare, in properties and class methods, and in the closures of those."""
    waiting = list(values)
    seen: set[int] = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, property):
            waiting += (value.fget, value.fset, value.fdel)
        elif isinstance(value, (staticmethod, classmethod)):
            waiting.append(value.__func__)
        elif isinstance(value, types.FunctionType) and id(value) not in seen:
            seen.add(id(value))
            yield value
            for cell in value.__closure__ or ():
                with contextlib.suppress(ValueError):  # an empty cell
                    waiting.append(cell.cell_contents)


def find(module: str, qualname: str, number: str | None) -> Any:
    """The script's class or function of that name, or the class that cloudpickle tracks under `number`.

    Raises:
        AttributeError: this process has neither.
    """
    found = _named(module, qualname)
    if found is not None and (number is None or isinstance(found, type)):
        return found
    found = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_ID.get(number)
    if found is None:
        raise AttributeError(
            f"the batch holds {module}.{qualname}, which the calling process no longer has: a class of the batch must "
            "exist there under that name for as long as the augmenter is used"
        )
    return found


def _number_of(kind: type) -> str | None:
    """The number under which both processes know the class."""
    if kind in _sent_by_value:
        return None
    number: str | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(kind)
    return number


def _importable(obj: Any) -> bool:
    return _named(obj.__module__, obj.__qualname__) is obj


def _named(module: str, qualname: str) -> Any:
    """What stands under the name, None if nothing does."""
    found: Any = sys.modules.get(module)
    if found is None and module == "__mp_main__":
        found = sys.modules.get("__main__")
    for part in qualname.split("."):
        found = getattr(found, part, None)
    return found
