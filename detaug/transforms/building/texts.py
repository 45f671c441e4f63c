"""Transforms and their params as text for people."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from html import escape
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detaug.transforms.building.base import Transform

_WIDTH = 100
_LONGEST = 12  # what is shown of a list
_STEP = "    "


def as_written(transform: Transform) -> str:
    """The call that makes the transform, arguments at their defaults left out; on several lines where it has transforms
    within or is long."""
    arguments = [f"{name}={_value(value)}" for name, value in _arguments(transform).items()]
    name = type(transform).__name__
    on_one_line = f"{name}({', '.join(arguments)})"
    if len(on_one_line) <= _WIDTH and "\n" not in on_one_line:
        return on_one_line
    return f"{name}(\n" + "".join(f"{indented(each)},\n" for each in arguments) + ")"


def as_html(transform: Transform) -> str:
    """The transform for a notebook: its name and arguments; transforms within as a numbered list."""
    return f'<div style="font-size: 0.9em; line-height: 1.5; overflow-wrap: anywhere">{_html(transform)}</div>'


def _html(transform: Transform) -> str:
    arguments = _arguments(transform)
    inner = [value for value in arguments.values() if hasattr(value, "described")]
    lists = [value for value in arguments.values() if _has_transforms(value)]
    plain = {name: value for name, value in arguments.items() if not any(value is each for each in (*inner, *lists))}
    shown = ", ".join(f"{escape(name)}=<code>{escape(_value(value))}</code>" for name, value in plain.items())
    text = f"<b>{escape(type(transform).__name__)}</b>" + (f" {shown}" if shown else "")
    for each in inner:
        text += f" › {_html(each)}"
    for each in lists:
        items = "".join(f"<li>{_html(one)}</li>" for one in each)
        text += f'<ol style="margin: 0.2em 0; padding-left: 2em">{items}</ol>'
    return text


def _has_transforms(value: Any) -> bool:
    return isinstance(value, list) and any(hasattr(each, "described") for each in value)


def indented(text: str) -> str:
    """Every line one step further to the right."""
    return "\n".join(_STEP + line for line in text.splitlines())


def shown_params(params: Mapping[str, Any]) -> str:
    """``name=value, ...`` with six digits and the beginning of long lists."""
    return ", ".join(f"{name}={_short(value)}" for name, value in params.items())


def _arguments(transform: Transform) -> dict[str, Any]:
    """Those that the transform keeps under their names, or its class for all, and that are not at their defaults."""
    kept = {name: value for name, value in vars(transform).items() if not name.startswith("_")}
    declared = inspect.signature(type(transform)).parameters
    if not declared.keys() & kept.keys():
        return kept
    of_class = {name: getattr(type(transform), name) for name in declared if hasattr(type(transform), name)}
    kept = {name: value for name, value in of_class.items() if isinstance(value, (str, int, float))} | kept
    return {
        name: kept[name]
        for name, parameter in declared.items()
        if name in kept and not _is_default(kept[name], parameter.default)
    }


def _is_default(value: Any, default: Any) -> bool:
    if value is default or repr(value) == repr(default):
        return True
    plain = (bool, int, float, tuple, list)  # (0, 1) is kept as (0.0, 1.0)
    return isinstance(value, plain) and isinstance(default, plain) and bool(value == default)


def _value(value: Any) -> str:
    if _has_transforms(value):
        return "[\n" + "".join(f"{indented(repr(each))},\n" for each in value) + "]"
    function = getattr(value, "function", value)  # of a `ByPosition`
    if inspect.isroutine(function):
        return str(getattr(function, "__qualname__", repr(function)))  # the usual text has an address
    return repr(value)


def _short(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, Mapping):
        return "{" + shown_params(value) + "}"
    if isinstance(value, (list, tuple)):
        more = f", ... {len(value)} in all" if len(value) > _LONGEST else ""
        inside = ", ".join(_short(each) for each in value[:_LONGEST]) + more
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return repr(value)
