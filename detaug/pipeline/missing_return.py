"""Transforms that forget to return what they made: which one it was, in a composition too."""

from __future__ import annotations

import traceback
from typing import Any

#: How compositions (of batchgenerators, batchgeneratorsv2, MONAI, torchvision ...) call what goes from one to the next.
_HANDED_ON = (
    "data_dict",
    "data",
    "batch",
    "sample",
    "subject",
    "image",
    "img",
    "item",
    "inputs",
    "input_",
    "input",
    "x",
)


def last_of(transform: Any) -> Any:
    """The transform whose result is the result: of a composition the last one's."""
    parts = _parts(transform)
    return last_of(parts[-1]) if parts else transform


def handed_on_none(error: BaseException) -> Any:
    """The transform of a composition that had returned None, where the next one then failed on it; else None."""
    found = None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        local = frame.f_locals
        parts = _parts(local.get("self")) or _listed(local.get("transforms"))  # MONAI's loop is a function
        called = {id(value) for name, value in local.items() if name != "self"}
        numbers = [number for number, part in enumerate(parts) if id(part) in called]
        if len(numbers) == 1 and numbers[0] > 0 and any(local.get(name, ...) is None for name in _HANDED_ON):
            found = last_of(parts[numbers[0] - 1])
    return found


def returned_none(transform: Any) -> TypeError:
    """The error to raise."""
    code = getattr(transform, "__code__", None)
    where = "" if code is None else f" ({code.co_filename}:{code.co_firstlineno})"
    name = getattr(transform, "__qualname__", type(transform).__name__)
    return TypeError(
        f"the transform {name}{where} returned None in the place of the batch. A transform returns what it made, also where "
        "it changed the batch in place: is its return statement missing?"
    )


def _parts(transform: Any) -> list[Any]:
    inner = getattr(transform, "transform", None)
    return _listed(getattr(transform, "transforms", None)) or ([inner] if callable(inner) else [])


def _listed(parts: Any) -> list[Any]:
    return list(parts) if isinstance(parts, (list, tuple)) else []
