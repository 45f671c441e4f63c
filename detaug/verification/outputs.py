"""What each transform of a composition returned, to see which is the first that differs, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any

import numpy as np
import torch

from detaug.fingerprints import fingerprint
from detaug.purity.pristine import TransformCopy
from detaug.watching.interception import listening

#: Where compositions and loaders of all libraries keep their transforms.
_INNER = ("transforms", "transform", "list_of_transforms")
_CALLS = ("__call__", "_wrapped_call_impl")
_MAX_DEPTH = 16
#: When it returns, a batch's own copies of the transforms are in their places.
_COPIES_ARE_THERE = TransformCopy.put_into.__code__

LOADER = "the loader"


@dataclass(frozen=True)
class Output:
    """What a transform (or the loader) returned.

    Attributes:
        name: e.g. ``transform.transforms[3] (GammaTransform)``.
        leaves: by their path in the batch: arrays as copies, digests of anything else.
    """

    name: str
    leaves: dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """How two outputs differ.

    Attributes:
        where: the first transform whose output differs, or the loader.
        key: the first part of the batch that differs.
        largest: the largest absolute difference of its elements; None where that has no meaning.
        elements, of: how many of its elements differ, of how many.
    """

    where: str
    key: str
    largest: float | None
    elements: int
    of: int

    def __str__(self) -> str:
        if self.of == 0:
            return f"{self.where}: {self.key} differs"
        by = "" if self.largest is None else f", by at most {self.largest:.3g}"
        return f"{self.where}: {self.key} differs in {self.elements} of {self.of} elements{by}"


class OutputRecorder:
    """Records what the transforms below a pipeline's objects return.

    Args:
        objects: gives those that the batch is being made with: "source" (detaug's own wrapper of the loader, whose `make`
            gives the raw batch), "data_loader" and "transform".
    """

    def __init__(self, objects: Callable[[], dict[str, Any]]) -> None:
        self.outputs: list[Output] = []
        self._objects = objects
        self._source: Any = None
        #: The number of a transform, or of a function's code, → itself, which keeps the number its own, and its name.
        self._known: dict[int, tuple[Any, str]] = {}

    def _find_all(self) -> None:
        """Every batch has its own copies."""
        objects = self._objects()
        self._source = objects["source"]
        self._known.clear()
        self._find(objects["transform"], "transform", 0)
        for name, value in list(getattr(objects["data_loader"], "__dict__", {}).items()):
            if name in _INNER or callable(value):
                self._find(value, f"loader.{name}", 0)

    def _find(self, value: Any, path: str, depth: int) -> None:
        if isinstance(value, (list, tuple)) and depth < _MAX_DEPTH:
            for number, item in enumerate(value):
                self._find(item, f"{path}[{number}]", depth + 1)
        code = getattr(value, "__code__", None)
        key = value if code is None else code
        if not callable(value) or isinstance(value, type) or id(key) in self._known or depth > _MAX_DEPTH:
            return
        self._known[id(key)] = key, f"{path} ({getattr(value, '__qualname__', type(value).__name__)})"
        for name in _INNER if code is None else ():
            self._find(getattr(value, "__dict__", {}).get(name), f"{path}.{name}", depth + 1)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Inside, in this thread, outputs are recorded."""
        with listening(self._event):
            yield

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "return":
            return
        if frame.f_code is _COPIES_ARE_THERE:
            self._find_all()
        name = None if argument is None else self._name_of(frame)
        if name is not None:
            leaves: dict[str, Any] = {}
            _collect(argument, "", leaves)
            self.outputs.append(Output(name, leaves))

    def _name_of(self, frame: FrameType) -> str | None:
        code, owner = frame.f_code, frame.f_locals.get("self")
        if code.co_name == "make" and type(owner) is type(self._source):
            return LOADER
        known = self._known.get(id(code)) or (self._known.get(id(owner)) if code.co_name in _CALLS else None)
        return None if known is None else known[1]


def _collect(value: Any, path: str, into: dict[str, Any]) -> None:
    if isinstance(value, Mapping):
        for key, item in value.items():
            _collect(item, f"{path}[{key!r}]", into)
    elif isinstance(value, (list, tuple)) and len(value) <= 1_000:
        for number, item in enumerate(value):
            _collect(item, f"{path}[{number}]", into)
    elif isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout == torch.strided:
        detached = value.detach()
        into[path] = (detached.float() if value.dtype == torch.bfloat16 else detached).resolve_neg().numpy().copy()
    elif isinstance(value, np.ndarray) and not value.dtype.hasobject:
        into[path] = np.array(value)
    elif isinstance(value, (bool, int, float, np.generic)):
        into[path] = np.asarray(value)
    else:
        try:
            into[path] = fingerprint(value)
        except TypeError:  # an object of the user's own, of which the batch shows nothing
            into[path] = type(value).__qualname__


def first_difference(first: list[Output], second: list[Output]) -> Difference | None:
    """The first transform whose outputs differ in two runs of one batch; None where all are equal."""
    for here, there in zip(first, second, strict=False):
        if here.name != there.name:
            return Difference(here.name, "the order of transforms", None, 0, 0)
        for key in [*here.leaves, *(key for key in there.leaves if key not in here.leaves)]:
            found = _difference(here.name, key, here.leaves.get(key), there.leaves.get(key))
            if found is not None:
                return found
    return None


def _difference(where: str, key: str, here: Any, there: Any) -> Difference | None:
    name = key or "the batch"
    if not isinstance(here, np.ndarray) or not isinstance(there, np.ndarray):
        same = isinstance(here, str) and isinstance(there, str) and here == there
        return None if same else Difference(where, name, None, 0, 0)
    if here.dtype != there.dtype or here.shape != there.shape:
        return Difference(where, f"the shape or type of {name}", None, 0, 0)
    unequal = (_bytes(here) != _bytes(there)).any(axis=1)
    if not unequal.any():
        return None
    largest = None
    if here.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            largest = float(np.nanmax(np.abs(here.astype(np.float64) - there.astype(np.float64))))
    return Difference(where, name, largest, int(unequal.sum()), int(here.size))


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A row for every element, so that a NaN equals itself."""
    return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
