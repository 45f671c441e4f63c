"""The integer dtype that holds a segmentation's labels while they are resampled."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.transforms.building.workspace import Workspace

_INT16 = np.dtype(np.int16)
_INT32 = np.dtype(np.int32)


def resampling_dtype(workspace: Workspace, padding: float) -> np.dtype[Any]:
    """Return int16 or, where that does not hold all labels and the padding, int32.

    Args:
        workspace: the sample.
        padding: the label outside.

    Raises:
        ValueError: labels that are not whole numbers, or that int32 does not hold.
    """
    if "segmentation" not in workspace:
        return _INT16
    low = padding
    high = padding
    labels = workspace.lazy("segmentation") or workspace["segmentation"]
    # Labels whose dtype fits int16 fit, too: finding their range would take as long as a crop.
    if not np.can_cast(labels.dtype, _INT16):
        # Only here, since it reads a lazy segmentation as a whole.
        least, largest = _least_and_largest_label(workspace["segmentation"])
        low = min(low, least)
        high = max(high, largest)
    if _holds(_INT16, low, high):
        return _INT16
    return _INT32


def _least_and_largest_label(labels: np.ndarray) -> tuple[float, float]:
    """Return both; raise a ValueError unless all labels are whole numbers that int32 holds."""
    # NaN differs from itself, so that it is refused, too.
    if labels.dtype.kind == "f" and not (labels == np.floor(labels)).all():
        raise ValueError(
            "SpatialTransform takes labels that are whole numbers, and the segmentation "
            f"({labels.dtype}) has {_first_other(labels)!r}. Pass soft labels as "
            "regression_target; replace NaN by a label, e.g. -1"
        )
    low = labels.min().item()
    high = labels.max().item()
    if not _holds(_INT32, low, high):
        raise ValueError(
            f"SpatialTransform takes labels from {-(2**31)} to {2**31 - 1}, and the segmentation "
            f"has {low} to {high}: renumber them, e.g. with numpy.unique"
        )
    return low, high


def _first_other(labels: np.ndarray) -> float:
    """Return the first number that is not a whole one."""
    others: np.ndarray = labels[labels != np.floor(labels)]
    return float(others[0])


def _holds(dtype: np.dtype[Any], low: float, high: float) -> bool:
    limits = np.iinfo(dtype)
    return low >= int(limits.min) and high <= int(limits.max)
