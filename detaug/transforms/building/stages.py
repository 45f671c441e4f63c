"""Looking on while a pipeline is applied: one transform after another, each with its own params."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detaug.transforms.building.base import Transform
    from detaug.transforms.building.workspace import Workspace


@dataclass(frozen=True)
class Stage:
    """A transform that is applied.

    Attributes:
        place: where it is in the pipeline: its number in the composition, and so on inwards. Places of one pipeline are in
            the order of application.
        transform: what is applied, and no composition.
        params: its own.
    """

    place: tuple[int, ...]
    transform: Transform
    params: dict[str, Any]

    def within(self, number: int) -> Stage:
        """The same stage, seen from the composition in which this one has that number."""
        return Stage((number, *self.place), self.transform, self.params)


#: Called in place of ``transform.apply_in(workspace, params)``, which it has to do.
Observer = Callable[["Transform", "Workspace", dict[str, Any]], None]

_observer: ContextVar[Observer | None] = ContextVar("detaug_observer", default=None)


@contextmanager
def observed(observer: Observer | None) -> Iterator[None]:
    """Inside, in this thread, `observer` applies the params of every pipeline that is called. A pipeline that is called
    while it does is applied as ever."""
    token = _observer.set(observer)
    try:
        yield
    finally:
        _observer.reset(token)


def apply_observed(transform: Transform, workspace: Workspace, params: dict[str, Any]) -> None:
    """Apply params in a workspace, or have the observer do it."""
    observer = _observer.get()
    if observer is None:
        transform.apply_in(workspace, params)
        return
    with observed(None):
        observer(transform, workspace, params)
