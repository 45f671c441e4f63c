"""What each transform of a pipeline returned, to see which is the first that differs, and by how
much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from detaug.objects.differences import differences
from detaug.objects.fingerprints import fingerprint_or_none
from detaug.objects.walking import leaves

#: The name of what returned something (a transform's class), and what: by their path in the batch
#: arrays as copies, of anything else digests.
Output = tuple[str, dict[str, Any]]


def output_of(name: str, value: Any) -> Output:
    """Return what a transform, a loader or a data set returned, as it is now."""
    return name, {path: _kept(leaf) for path, leaf in leaves(value)}


def _kept(value: Any) -> Any:
    if (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.layout == torch.strided
    ):
        detached = value.detach()
        value = (
            (detached.float() if value.dtype == torch.bfloat16 else detached).resolve_neg().numpy()
        )
    elif isinstance(value, (bool, int, float, np.generic)):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return np.array(value)
    # Of an object of the user's own the batch shows nothing but its class.
    return fingerprint_or_none(value) or type(value).__qualname__


def first_difference(first: list[Output], second: list[Output]) -> str:
    """The first transform whose outputs differ in two runs of one batch, and how; "" where all are
    equal.
    """
    for (name, here), (other, there) in zip(first, second, strict=False):
        if name != other:
            return f"{name}: the order of transforms differs"
        for key, value, other_value in differences(here, there, compared_by=_comparable):
            return f"{name}: {key or 'the batch'} differs{_difference(value, other_value)}"
    return ""


def _comparable(value: Any) -> Any:
    """Return what two outputs are compared by: an array's dtype, shape and bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def _difference(here: Any, there: Any) -> str:
    """Return how two different outputs differ, in words."""
    if not isinstance(here, np.ndarray) or not isinstance(there, np.ndarray):
        return " altogether"
    if here.dtype != there.dtype or here.shape != there.shape:
        return " in shape or type"
    unequal = (_bytes(here) != _bytes(there)).any(axis=1)
    by = ""
    if here.dtype.kind in "fiub":
        with np.errstate(all="ignore"):
            largest = float(np.nanmax(np.abs(here.astype(np.float64) - there.astype(np.float64))))
        by = f", by at most {largest:.3g}"
    return f" in {unequal.sum()} of {here.size} elements{by}"


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """A row for every element, so that a NaN equals itself."""
    return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
