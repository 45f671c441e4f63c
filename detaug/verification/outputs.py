"""The outputs of a pipeline's transforms, to find the first that differs, and by how much."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from detaug.objects.differences import differences
from detaug.objects.fingerprints import fingerprint_or_none
from detaug.objects.walking import leaves

#: The name of a stage (a transform's class), and its output: copies of arrays and digests of
#: anything else, by their path in the batch.
Output = tuple[str, dict[str, Any]]


def output_of(name: str, value: Any) -> Output:
    """Return what a transform, a loader or a data set returned, as it is now."""
    return name, {path: _kept(leaf) for path, leaf in leaves(value)}


def _kept(value: Any) -> Any:
    """Return a copy of an array, tensor or number, or a digest of anything else."""
    if _is_dense_on_cpu(value):
        value = _array_of(value)
    elif isinstance(value, (bool, int, float, np.generic)):
        value = np.asarray(value)
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        # A copy, because the next transform may write into the array that this one returned.
        return np.array(value)
    # A batch shows only the class of an object that has no fingerprint.
    return fingerprint_or_none(value) or type(value).__qualname__


def _is_dense_on_cpu(value: Any) -> bool:
    """Return whether a value is a tensor that NumPy can view."""
    if not isinstance(value, torch.Tensor):
        return False
    return value.device.type == "cpu" and value.layout == torch.strided


def _array_of(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """Return a dense tensor as an array."""
    detached = tensor.detach()
    if tensor.dtype == torch.bfloat16:
        # NumPy has no bfloat16; float32 holds all its values.
        detached = detached.float()
    return detached.resolve_neg().numpy()


def first_difference(first: list[Output], second: list[Output]) -> str:
    """Return the first transform whose outputs differ in two runs of one batch, and how.

    It is "" if all are equal.
    """
    for (name, expected), (other_name, actual) in zip(first, second, strict=False):
        if name != other_name:
            return f"{name}: the order of transforms differs"
        for path, value, other_value in differences(expected, actual, compared_by=_comparable):
            return f"{name}: {path or 'the batch'} differs{_difference(value, other_value)}"
    return ""


def _comparable(value: Any) -> Any:
    """Return what two outputs are compared by: an array's dtype, shape and bytes."""
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, value.tobytes()
    return value


def _difference(expected: Any, actual: Any) -> str:
    """Return how two different outputs differ, in words."""
    if not isinstance(expected, np.ndarray) or not isinstance(actual, np.ndarray):
        return " altogether"
    if expected.dtype != actual.dtype or expected.shape != actual.shape:
        return " in shape or type"
    # By bytes, because -0.0 == 0.0 for NumPy, and no NaN equals itself.
    unequal = (_bytes(expected) != _bytes(actual)).any(axis=1)
    text = f" in {unequal.sum()} of {expected.size} elements"
    if expected.dtype.kind not in "fiub":
        return text
    # Infinities and NaNs are among the values to be compared.
    with np.errstate(all="ignore"):
        distances = np.abs(expected.astype(np.float64) - actual.astype(np.float64))
        largest = float(np.nanmax(distances))
    return f"{text}, by at most {largest:.3g}"


def _bytes(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of shape (elements, bytes): by its bytes a NaN equals itself."""
    return np.ascontiguousarray(array).reshape(-1, 1).view(np.uint8)
