"""Samples of other libraries as detaug's transforms take them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


def with_float_images(arrays: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """Return a sample's arrays or plain tensors, with images of integers as float32.

    Args:
        arrays: (C, X, Y[, Z]), by name.
        roles: "image" or "segmentation", by the same names.
    """
    result = dict(arrays)
    for name, array in arrays.items():
        if roles[name] == "image":
            result[name] = _as_float(array)
    return result


def _as_float(array: Any) -> Any:
    """Return an array or tensor as it is if it has floats, else as float32."""
    if isinstance(array, torch.Tensor):
        if array.is_floating_point():
            return array
        return array.float()
    if array.dtype.kind == "f":
        return array
    return array.astype(np.float32)
