"""Watches a batch being made: every transform's params, and a fingerprint of the arrays after it."""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from detaug.ledger.notes import prints_of
from detaug.transforms import Compose, OneOf, RandomApply, Transform
from detaug.transforms.building.memory import LazyVolume
from detaug.transforms.building.stages import shown_params
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
        sample: of the batch, from 0; where a transform takes whole batches, the index of its call.
        depth: in how many others it is.
        text: its name and params.
        fingerprint: of all arrays after it; empty: it was not applied, or left nothing to compare.
    """

    sample: int
    depth: int
    text: str
    fingerprint: str


class Watch:
    """Watches one batch.

    Attributes:
        stages: what was seen, in its order.
    """

    def __init__(self) -> None:
        self.stages: list[Stage] = []
        self._number = -1
        self._open: list[types.FrameType] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, this thread is watched."""
        with listening(self._listen):
            yield

    def _listen(self, frame: types.FrameType, event: str, result: Any) -> None:
        if event == "call" and _is_transform(frame):
            self._number += not self._open
            self._open.append(frame)
        elif event == "return" and self._open and frame is self._open[-1]:
            self._open.pop()
            self._ended(frame, result)

    def _ended(self, frame: types.FrameType, result: Any) -> None:
        native = frame.f_code in _NATIVE
        text = _text_of(_owner(frame), frame, native)
        if text is None or (not native and not _arrays_in(result)):
            return
        arrays = frame.f_locals["workspace"].present() if native else result
        fingerprint = "" if text.endswith(": not applied") else _print_of(arrays)
        self.stages.append(Stage(self._number, len(self._open), text, fingerprint))


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
