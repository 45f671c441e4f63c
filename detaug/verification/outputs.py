"""What each transform of a pipeline returned, to see which is the first that differs, and by how much."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils._pytree import keystr, tree_flatten_with_path

from detaug.fingerprints import fingerprint

#: The name of what returned something (a transform's class), and what: by their path in the batch arrays as copies, of anything
#: else digests.
Output = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Difference:
    """How two outputs differ.

    Attributes:
        where: the class of the first transform or loader whose output differs; else "the loader" or "the batch".
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


def output_of(name: str, value: Any) -> Output:
    """What somebody returned, as it is now."""
    leaves, _ = tree_flatten_with_path(value)
    return name, {keystr(path): _kept(leaf) for path, leaf in leaves}


def _kept(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type == "cpu" and value.layout == torch.strided:
        detached = value.detach()
        return (detached.float() if value.dtype == torch.bfloat16 else detached).resolve_neg().numpy().copy()
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return np.array(value)
    if isinstance(value, (bool, int, float, np.generic)):
        return np.asarray(value)
    try:
        return fingerprint(value)
    except TypeError:  # an object of the user's own, of which the batch shows nothing
        return type(value).__qualname__


def first_difference(first: list[Output], second: list[Output]) -> Difference | None:
    """The first transform whose outputs differ in two runs of one batch; None where all are equal."""
    for (name, here), (other, there) in zip(first, second, strict=False):
        if name != other:
            return Difference(name, "the order of transforms", None, 0, 0)
        for key in {**here, **there}:
            if found := _difference(name, key, here.get(key), there.get(key)):
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
