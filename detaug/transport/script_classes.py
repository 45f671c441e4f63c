"""Classes and functions of the user's script in a batch: sent by name, and found again in the parent.

A fresh interpreter does not run the user's script; cloudpickle sends it the script's classes by value. Sent back by
value, a class would come in as a second one, or overwrite the attributes of the parent's own. So what came from the
parent goes back as a name, and as the number under which cloudpickle tracks it in both processes (for local classes,
which no name finds).
"""

from __future__ import annotations

import sys
import types
from typing import Any

from cloudpickle import cloudpickle

_SCRIPT = ("__main__", "__mp_main__")


def reduce_by_name(obj: Any) -> Any:
    """What pickle is to write for a class or function that only the script has, else NotImplemented."""
    if isinstance(obj, type):
        number: str | None = cloudpickle._DYNAMIC_CLASS_TRACKER_BY_CLASS.get(obj)
        if number is None or _importable(obj):
            return NotImplemented
        return find, (obj.__module__, obj.__qualname__, number)
    if isinstance(obj, types.FunctionType) and obj.__module__ in _SCRIPT and "<" not in obj.__qualname__:
        return NotImplemented if _importable(obj) else (find, (obj.__module__, obj.__qualname__, None))
    return NotImplemented


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
