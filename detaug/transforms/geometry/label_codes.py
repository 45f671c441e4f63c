"""Labels of any dtype as int16, which is what label kernels work on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Decode = Callable[[np.ndarray], np.ndarray]


def as_int16(labels: np.ndarray, extra: float | None = None) -> tuple[np.ndarray, int, Decode]:
    """Labels as int16 in the same order, the code of one more label, and the way back to the dtype they had.

    Args:
        labels: integers, bool or floating point, of any shape.
        extra: a label that need not be among them (that of the padding); it is cast to their dtype as an assignment
            to an element would.

    Raises:
        ValueError: more than 65,536 different labels, or NaN among them.
    """
    dtype = labels.dtype
    more = np.zeros((), dtype) if extra is None else np.asarray(extra).astype(dtype)
    if dtype == np.int16:
        return np.ascontiguousarray(labels), int(more), lambda codes: codes
    if dtype in (np.int8, np.uint8, np.bool_) or _fits(labels, more):
        return np.ascontiguousarray(labels, dtype=np.int16), int(more), lambda codes: codes.astype(dtype)
    if dtype.kind == "f" and np.isnan(labels).any():
        raise ValueError("the segmentation holds NaN, which is no label")
    values = np.unique(np.append(np.unique(labels), more))
    if len(values) > 2**16:
        raise ValueError(f"the segmentation holds {len(values)} different values, too many to be labels")
    codes = (np.searchsorted(values, labels) - 2**15).astype(np.int16)
    return (
        np.ascontiguousarray(codes),
        int(np.searchsorted(values, more)) - 2**15,
        lambda c: values[c.astype(np.int64) + 2**15],
    )


def _fits(labels: np.ndarray, more: np.ndarray) -> bool:
    low, high = min(labels.min(), more), max(labels.max(), more)
    if not (low >= -(2**15) and high < 2**15):  # also false for NaN
        return False
    return labels.dtype.kind != "f" or bool((labels == np.floor(labels)).all() and more == np.floor(more))
