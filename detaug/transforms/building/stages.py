"""A pipeline's stages: looked on one after another, told to people."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from detaug.transforms.building.workspace import Workspace

#: The only param of those that are drawn from the image, when it is there: the key of the
#: Generator.
DEFERRED = "deferred_key"


class Applicable(Protocol):
    """Anything that is applied with params in a workspace; every `Transform` is (see there)."""

    def apply_in(self, workspace: Workspace, params: dict[str, Any]) -> None:
        """Apply params in a workspace."""

    def output_shapes(self, shapes: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """Return the shapes after the transform."""

    def stages(self, params: dict[str, Any]) -> list[AppliedTransform]:
        """Return the transforms that these params apply, in order."""


class AppliedTransform(NamedTuple):
    """A transform that is applied, no composition, with its own params.

    Its ``place`` is its number in the composition, and so on inwards: places of one pipeline are in
    the order of application.
    """

    place: tuple[int, ...]
    transform: Applicable
    params: dict[str, Any]

    def __str__(self) -> str:
        place = ".".join(str(number + 1) for number in self.place)
        shown = (
            "drawn from the image when it is there"
            if DEFERRED in self.params
            else shown_params(self.params)
        )
        return (
            f"{place:>4}  " * bool(place)
            + type(self.transform).__name__
            + f": {shown}" * bool(shown)
        )


#: Called in place of ``transform.apply_in(workspace, params)``, which it has to do.
Observer = Callable[[Applicable, Workspace, dict[str, Any]], None]

_observer: ContextVar[Observer | None] = ContextVar("detaug_observer", default=None)


@contextmanager
def observe_transforms(observer: Observer | None) -> Iterator[None]:
    """Inside, in this thread, `observer` applies the params of every pipeline that is called. A
    pipeline that is called while it does is applied as ever.
    """
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def apply_observed(transform: Applicable, workspace: Workspace, params: dict[str, Any]) -> None:
    """Apply params in a workspace, or have the observer do it."""
    observer = _observer.get()
    if observer is None:
        transform.apply_in(workspace, params)
        return
    with observe_transforms(None):
        observer(transform, workspace, params)


_LONGEST = 12  # what is shown of a list
_MOST_LEVELS = 8  # what is shown of lists in lists


def shown_params(params: Mapping[str, Any]) -> str:
    """``name=value, ...`` with six digits and the beginning of long lists."""
    return _shown(params, 0)


def _shown(params: Mapping[str, Any], level: int) -> str:
    return ", ".join(f"{name}={_short(value, level)}" for name, value in params.items())


def _short(value: Any, level: int) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (Mapping, list, tuple)) and level == _MOST_LEVELS:
        return "..."
    if isinstance(value, Mapping):
        return "{" + _shown(value, level + 1) + "}"
    if isinstance(value, (list, tuple)):
        more = f", ... {len(value)} in all" if len(value) > _LONGEST else ""
        inside = ", ".join(_short(item, level + 1) for item in value[:_LONGEST]) + more
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return repr(value)
