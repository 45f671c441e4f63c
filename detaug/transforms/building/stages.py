"""The single transforms that a pipeline applies: observed one after another, written as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from detaug.transforms.building.workspace import Workspace

#: The only param of a transform whose params are drawn when the image exists: the Generator's key.
DEFERRED = "deferred_key"


class Applicable(Protocol):
    """Anything that is applied with params in a workspace; every `Transform` is."""

    def apply_in(self, workspace: Workspace, params: dict[str, Any]) -> None:
        """Apply params in a workspace."""

    def output_shapes(self, shapes: Mapping[str, Any], params: dict[str, Any]) -> dict[str, Any]:
        """Return the shapes after the transform."""

    def stages(self, params: dict[str, Any]) -> list[AppliedTransform]:
        """Return the transforms that these params apply, in order."""


class AppliedTransform(NamedTuple):
    """A single transform, not a composition, that is applied with its own params.

    Attributes:
        place: its index in the composition, then its index in the composition inside that one, and
            so on. Sorted by it, the stages of a pipeline are in the order of application.
        transform: the transform.
        params: its own params.
    """

    place: tuple[int, ...]
    transform: Applicable
    params: dict[str, Any]

    def __str__(self) -> str:
        text = type(self.transform).__name__
        if self.place:
            numbers = ".".join(str(index + 1) for index in self.place)
            text = f"{numbers:>4}  {text}"
        if DEFERRED in self.params:
            return f"{text}: drawn from the image when it is there"
        if self.params:
            return f"{text}: {shown_params(self.params)}"
        return text


#: Called instead of ``transform.apply_in(workspace, params)``, which the observer has to do.
Observer = Callable[[Applicable, Workspace, dict[str, Any]], None]

_observer: ContextVar[Observer | None] = ContextVar("detaug_observer", default=None)


@contextmanager
def observe_transforms(observer: Observer | None) -> Iterator[None]:
    """Let `observer` apply the params of every pipeline that is called in this thread.

    A pipeline that is called while the observer runs is applied as usual.
    """
    # A context variable, not a global: other threads may call pipelines at the same time.
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def apply_observed(transform: Applicable, workspace: Workspace, params: dict[str, Any]) -> None:
    """Apply params in a workspace, or let the observer do it."""
    observer = _observer.get()
    if observer is None:
        transform.apply_in(workspace, params)
        return
    # The observer may call pipelines of its own, which must not come back to it.
    with observe_transforms(None):
        observer(transform, workspace, params)


#: Elements of a list that are shown.
_MAX_ELEMENTS = 12
#: Levels of nested lists that are shown.
_MAX_LEVELS = 8


def shown_params(params: Mapping[str, Any]) -> str:
    """Return ``name=value, ...`` with six digits a number and the beginning of long lists."""
    return _shown(params, 0)


def _shown(params: Mapping[str, Any], level: int) -> str:
    return ", ".join(f"{name}={_short(value, level)}" for name, value in params.items())


def _short(value: Any, level: int) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    if not isinstance(value, (Mapping, list, tuple)):
        return repr(value)
    if level == _MAX_LEVELS:
        return "..."
    if isinstance(value, Mapping):
        return "{" + _shown(value, level + 1) + "}"
    text = ", ".join(_short(element, level + 1) for element in value[:_MAX_ELEMENTS])
    if len(value) > _MAX_ELEMENTS:
        text += f", ... {len(value)} in all"
    if isinstance(value, list):
        return f"[{text}]"
    return f"({text})"
