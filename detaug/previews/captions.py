"""Params in a few short lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Keys from which noise is made, and where callables draw from: 64 bits that tell a reader nothing.
_HIDDEN = ("key", "keys", "deferred_key", "apply_to_channel")

#: Numbers of a list that are shown.
_MOST = 12


def caption(params: Mapping[str, Any]) -> tuple[str, ...]:
    """A line for each param that says something, numbers with three digits."""
    lines = []
    for name, value in params.items():
        if name in _HIDDEN or value is None or (isinstance(value, (list, tuple, Mapping)) and not value):
            continue
        if isinstance(value, Mapping):
            lines += [f"{name} {line}" for line in caption(value)]
        else:
            lines.append(f"{name} {_short(value)}")
    return tuple(lines)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}"
    if isinstance(value, (list, tuple)):
        if len(value) == 1:
            return _short(value[0])
        shown = ", ".join(
            f"({_short(each)})" if isinstance(each, (list, tuple)) else _short(each) for each in value[:_MOST]
        )
        return shown + (f", … {len(value)} in all" if len(value) > _MOST else "")
    return str(value)
