"""An exception on its way from one process to another, whatever it is."""

from __future__ import annotations

import pickle
import traceback
from dataclasses import dataclass
from typing import Any

import cloudpickle

from detaug.engine.limits import advice_for

# A record must fit into one message, also when every character takes four bytes.
_LONGEST_SUMMARY = 1_000
_LONGEST_TRACEBACK = 8_000
_LARGEST_EXCEPTION = 16_000


@dataclass(frozen=True)
class ErrorRecord:
    """An exception that can be sent whatever it is.

    Attributes:
        summary: its class and message.
        methods: the loader's and transforms' methods on the way to it, outermost first.
        traceback: as text.
        pickled: the exception, or what of it can be pickled (see `rebuild`); None: nothing.
        advice: the limit of the system that it speaks of, if it does, as met in the process that raised it.
    """

    summary: str
    methods: str
    traceback: str
    pickled: bytes | None
    advice: str = ""


def describe(error: BaseException) -> ErrorRecord:
    """Take an exception down. Fails for none: not for those that cannot be printed, nor those that do not pickle."""
    try:
        summary = "".join(traceback.format_exception_only(type(error), error)).strip()
        text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    except Exception as worse:  # a broken __str__
        summary = text = f"{type(error).__name__} (which cannot be printed: {type(worse).__name__})"
    if len(text) > _LONGEST_TRACEBACK:
        half = _LONGEST_TRACEBACK // 2
        text = f"{text[:half]}\n... ({len(text) - 2 * half} characters left out) ...\n{text[-half:]}"
    return ErrorRecord(
        summary[:_LONGEST_SUMMARY], _methods(error)[:_LONGEST_SUMMARY], text, _pickled(error), advice_for(error)
    )


def _methods(error: BaseException) -> str:
    """``"Compose.__call__ > GammaTransform.__call__"``: which transform of a composition it was."""
    found: list[str] = []
    for frame, _ in traceback.walk_tb(error.__traceback__):
        owner = frame.f_locals.get("self")
        if owner is not None and not frame.f_globals.get("__name__", "").startswith("detaug."):
            found.append(f"{type(owner).__name__}.{frame.f_code.co_name}")
    return " > ".join(found)


def _pickled(error: BaseException) -> bytes | None:
    try:
        whole = pickle.dumps(("whole", error))
        pickle.loads(whole)  # many classes pickle and cannot be rebuilt
        if len(whole) <= _LARGEST_EXCEPTION:
            return whole
    except Exception:
        pass
    try:
        parts = (type(error), _picklable(error.args), dict(_picklable(list(error.__dict__.items()))))
        data = cloudpickle.dumps(("parts", parts))
        return bytes(data) if len(data) <= _LARGEST_EXCEPTION else None
    except Exception:
        return None


def _picklable(items: Any) -> Any:
    kept = []
    for item in items:
        try:
            pickle.loads(pickle.dumps(item))
        except Exception:
            continue
        kept.append(item)
    return tuple(kept) if isinstance(items, tuple) else kept


def rebuild(record: ErrorRecord) -> BaseException | None:
    """The exception; one made of its class and what could be sent of it, where its own constructor cannot be used."""
    if record.pickled is None:
        return None
    try:
        how, what = pickle.loads(record.pickled)
        if how == "whole":
            return what if isinstance(what, BaseException) else None
        kind, args, attributes = what
        error: BaseException = kind.__new__(kind)
        error.args = args
        error.__dict__.update(attributes)
        return error
    except Exception:
        return None
