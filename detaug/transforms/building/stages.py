"""A pipeline's stages: looked on one after another, told to people, undone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from detaug.transforms.building.calls import by_role, roles_of
from detaug.transforms.building.workspace import VOXEL_KEYS, Workspace

if TYPE_CHECKING:
    from detaug.transforms.building.base import Params, Transform


#: The only param of those that are drawn from the image, when it is there: the key of the Generator.
DEFERRED = "deferred_key"


@dataclass(frozen=True)
class Stage:
    """A transform that is applied, no composition, with its own params.

    Its ``place`` is its number in the composition, and so on inwards: places of one pipeline are in the order of application.
    """

    place: tuple[int, ...]
    transform: Transform
    params: dict[str, Any]


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


_LONGEST = 12  # what is shown of a list


def arguments_of(transform: Transform) -> Iterator[tuple[str, Any, Any]]:
    """Each argument that the transform keeps under its name: the name, the value, and the default, for `rich.pretty`."""
    kept = {**vars(type(transform)), **vars(transform)}
    for name, parameter in inspect.signature(type(transform)).parameters.items():
        if name in kept:
            value = getattr(kept[name], "function", kept[name])  # of a `ByPosition`
            yield name, _Name(value.__qualname__) if inspect.isfunction(value) else value, parameter.default


class _Name(str):
    """A function's, whose usual text has an address."""

    __repr__ = str.__str__


def described(stages: Sequence[Stage]) -> str:
    """A line for each transform that is applied: its place in the composition, its name and its params."""
    lines = []
    for stage in stages:
        place = ".".join(str(number + 1) for number in stage.place)
        shown = "drawn from the image when it is there" if DEFERRED in stage.params else shown_params(stage.params)
        lines.append(f"{place:>4}  " * bool(place) + type(stage.transform).__name__ + f": {shown}" * bool(shown))
    return "\n".join(lines) or "nothing is applied"


def shown_params(params: Mapping[str, Any]) -> str:
    """``name=value, ...`` with six digits and the beginning of long lists."""
    return ", ".join(f"{name}={_short(value)}" for name, value in params.items())


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


_NOTHING_IS_DRAWN = np.random.Generator(np.random.PCG64DXSM(0))


class Step(NamedTuple):
    """A transform that undoes another one: what is applied, with which params (None: those that follow from the shapes
    alone), and the spatial shape of what it is applied to (None: any)."""

    transform: Transform
    params: Params | None
    space: tuple[int, ...] | None = None


class Inverse:
    """What `Transform.inverse` returns: takes predictions made in the frame of the transformed sample, as images (of any number
    of channels) or labels, into the frame of the original one."""

    def __init__(self, steps: Sequence[Step], keys: Mapping[str, str | None]) -> None:
        self._steps = list(steps)
        self._keys = keys

    def __call__(self, **arrays: Any) -> dict[str, Any]:
        """The same keys, in the original frame.

        Args:
            arrays: as a transform takes them (see `detaug.transforms.Transform`): ``image`` (C, X, Y[, Z]) and so on.

        Raises:
            ValueError: arrays of another spatial shape than the transformed sample had.
        """

        def undone(sample: dict[str, Any]) -> dict[str, Any]:
            workspace = Workspace(sample)
            for step in self._steps:
                shapes = workspace.shapes()
                _check_space(shapes, step.space)
                params = step.transform.sample(_NOTHING_IS_DRAWN, shapes) if step.params is None else step.params
                step.transform.apply_in(workspace, params)
            return workspace.result()

        return by_role(arrays, roles_of(arrays, self._keys), undone)

    def __repr__(self) -> str:
        return f"Inverse({', '.join(type(step.transform).__name__ for step in self._steps)})"


def _check_space(shapes: Mapping[str, Any], space: tuple[int, ...] | None) -> None:
    for key in VOXEL_KEYS:
        if space is not None and shapes.get(key) is not None and tuple(shapes[key][1:]) != space:
            raise ValueError(
                f"{key} has the spatial shape {tuple(shapes[key][1:])}; the sample that is to be undone had {space} here"
            )
