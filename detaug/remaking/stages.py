"""Watches a batch being made: every transform's params, the arrays after it, and those before the first and after the last."""

from __future__ import annotations

import pdb
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from detaug.ledger.notes import prints_of
from detaug.transforms import Compose, OneOf, RandomApply, Transform
from detaug.transforms.building.lazy_volumes import LazyVolume
from detaug.transforms.building.texts import shown_params
from detaug.transforms.building.workspace import Workspace
from detaug.watching.profiler import listening

_CONTAINERS = (Compose, RandomApply, OneOf)
#: What has a ``__call__`` and is no transform.
_NO_TRANSFORMS = ("torch", "numpy", "functools", "numba", "detaug")
_NATIVE = (Transform.apply_in.__code__, Compose.apply_in.__code__)


@dataclass(frozen=True)
class Stage:
    """A transform that was applied, or was not.

    Attributes:
        sample: of the batch, from 0; where a transform takes whole batches, the how-manieth call of one.
        depth: in how many others it is.
        text: its name and params.
        fingerprint: of all arrays after it; empty: it was not applied, or left nothing to compare.
    """

    sample: int
    depth: int
    text: str
    fingerprint: str


@dataclass
class Watched:
    """What was seen.

    Attributes:
        stages: in their order.
        before, after: the arrays of the samples whose arrays were to be kept.
    """

    stages: list[Stage] = field(default_factory=list)
    before: dict[int, dict[str, Any]] = field(default_factory=dict)
    after: dict[int, dict[str, Any]] = field(default_factory=dict)


class Watch:
    """Watches one batch.

    Args:
        sample: the only one of interest; None: all.
        break_at: the name of the transform's class before which the debugger stops; empty: nowhere.
        keeps: the arrays before and after are kept.
        stop: stops the debugger in a frame.
    """

    def __init__(
        self,
        sample: int | None = None,
        break_at: str = "",
        keeps: bool = False,
        stop: Callable[[types.FrameType], None] | None = None,
    ) -> None:
        self.found = Watched()
        self.stopped = False
        self._sample, self._break_at, self._keeps = sample, break_at.lower(), keeps
        self._stop = stop or _debugger
        self._number = -1
        self._open: list[types.FrameType] = []

    @contextmanager
    def watching(self) -> Iterator[Watched]:
        """Inside, this thread is watched."""
        with listening(self._listen):
            yield self.found

    def _listen(self, frame: types.FrameType, event: str, result: Any) -> None:
        if event == "call" and _is_transform(frame):
            self._begins(frame)
        elif event == "return" and self._open and frame is self._open[-1]:
            self._open.pop()
            self._ended(frame, result)

    def _begins(self, frame: types.FrameType) -> None:
        if not self._open:
            self._number += 1
            if self._keeps and self._is_wanted:
                self.found.before[self._number] = _copied(_given(frame))
        self._open.append(frame)
        if self._break_at == type(_owner(frame)).__name__.lower() and self._is_wanted:
            self.stopped = True
            self._stop(frame)

    @property
    def _is_wanted(self) -> bool:
        return self._sample is None or self._sample == self._number

    def _ended(self, frame: types.FrameType, result: Any) -> None:
        if not self._is_wanted:
            return
        owner = _owner(frame)
        native = frame.f_code in _NATIVE
        arrays = frame.f_locals["workspace"].present() if native else result
        if not self._open and self._keeps:
            self.found.after[self._number] = _copied(_arrays_in(arrays))
        text = _text_of(owner, frame, native)
        if text is None or (not native and not _arrays_in(result)):
            return
        applied = not text.endswith(": not applied")
        fingerprint = _print_of(arrays) if applied else ""
        self.found.stages.append(Stage(self._number, len(self._open), text, fingerprint))


def _is_transform(frame: types.FrameType) -> bool:
    code = frame.f_code
    if code in _NATIVE:
        return True
    if code.co_name != "__call__" or not code.co_argcount:
        return False
    module = str(frame.f_globals.get("__name__", ""))
    return module.partition(".")[0] not in _NO_TRANSFORMS and _owner(frame) is not None and bool(_given(frame))


def _owner(frame: types.FrameType) -> Any:
    return frame.f_locals.get(frame.f_code.co_varnames[0])


def _given(frame: types.FrameType) -> dict[str, Any]:
    """The arrays that a transform is called with."""
    if frame.f_code in _NATIVE:
        workspace: Workspace = frame.f_locals["workspace"]
        return _arrays_in(workspace.present())
    found: dict[str, Any] = {}
    for name, value in frame.f_locals.items():
        found.update(_arrays_in(value) if isinstance(value, dict) else _arrays_in({name: value}))
    return found


def _arrays_in(value: Any) -> dict[str, Any]:
    if isinstance(value, (np.ndarray, torch.Tensor)):
        value = {"": value}
    if not isinstance(value, Mapping):
        return {}
    return {
        str(name): each
        for name, each in value.items()
        if isinstance(each, (np.ndarray, torch.Tensor, LazyVolume, list))
    }


def _copied(arrays: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copy(value) for name, value in arrays.items()}


def _copy(value: Any) -> Any:
    if isinstance(value, LazyVolume):
        return value.read_all()
    if isinstance(value, list):
        return _copy(value[0]) if value else None  # the largest of deep supervision's
    return np.array(value.numpy() if isinstance(value, torch.Tensor) else value) if hasattr(value, "shape") else None


def _text_of(owner: Any, frame: types.FrameType, native: bool) -> str | None:
    """The transform and its params; None where others within it say all."""
    name = type(owner).__name__
    params = frame.f_locals.get("params")
    if not native:
        known = params if isinstance(params, dict) else {}
        shown = shown_params({key: _without_arrays(value) for key, value in known.items()})
        return f"{name}: {shown}" if shown else name
    assert isinstance(params, dict)
    if isinstance(owner, _CONTAINERS) and (not isinstance(owner, RandomApply) or params["apply_transform"]):
        return None
    return str(owner.described(params)[0])


def _without_arrays(value: Any) -> Any:
    if isinstance(value, (np.ndarray, torch.Tensor)):
        return value.tolist() if value.ndim < 2 and len(value.reshape(-1)) <= 12 else f"array {tuple(value.shape)}"
    return value


def _print_of(arrays: Any) -> str:
    if isinstance(arrays, Mapping):
        arrays = {str(name): each for name, each in arrays.items() if not isinstance(each, LazyVolume)}
    return prints_of(arrays)[0] or ""


def _debugger(frame: types.FrameType) -> None:
    """Stop at the next line of that frame."""
    pdb.Pdb(nosigint=True).set_trace(frame)
