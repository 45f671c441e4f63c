"""Passes over label volumes: comparison, replacement and picking, one volume read and one written.

Labels are flat arrays. Where only equality is asked of them, integers are viewed as unsigned ones of the same width.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel

_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
_COMPARED = (*_UNSIGNED, "float32", "float64")
_SIGNED = ("int8", "int16", "int32", "int64", "float32", "float64")
_BLOCK = 4096  # voxels that stay in the first-level cache while they are compared with one label after another


@kernel(*(f"void({t}[::1], {t}[::1], {t}, {t})" for t in _COMPARED))
def replace_label(source: Any, destination: Any, label: Any, replacement: Any) -> None:
    """``destination = source`` with another value in place of one label; both may be one array."""
    # two loops, for the compiler's test that the arrays do not overlap fails where they are one
    if source.ctypes.data == destination.ctypes.data:
        for i in range(destination.shape[0]):
            value = destination[i]
            destination[i] = replacement if value == label else value
    else:
        for i in range(source.shape[0]):
            value = source[i]
            destination[i] = replacement if value == label else value


@kernel(*(f"void({t}[::1], {t}[::1], uint8[::1])" for t in _COMPARED))
def is_any_of(labels: Any, wanted: Any, result: Any) -> None:
    """1 where the label is one of those wanted, else 0."""
    for begin in range(0, labels.shape[0], _BLOCK):
        end = min(begin + _BLOCK, labels.shape[0])
        block = labels[begin:end]
        found = result[begin:end]
        for i in range(block.shape[0]):
            found[i] = np.uint8(0)
        for j in range(wanted.shape[0]):
            label = wanted[j]
            for i in range(block.shape[0]):
                found[i] |= np.uint8(block[i] == label)


@kernel(*(f"void({t}[::1], {t}, float32[::1])" for t in _COMPARED))
def indicator(labels: Any, label: Any, result: Any) -> None:
    """1.0 where the label is that one, else 0.0."""
    one = np.float32(1)
    zero = np.float32(0)
    for i in range(labels.shape[0]):
        result[i] = one if labels[i] == label else zero


@kernel(*(f"void(float32[::1], {t}[::1], float32, float32[::1])" for t in _SIGNED))
def set_where_negative(source: Any, labels: Any, value: Any, destination: Any) -> None:
    """``destination = source``, but the value where the label is negative; both may be one array."""
    if source.ctypes.data == destination.ctypes.data:
        for i in range(destination.shape[0]):
            kept = destination[i]
            destination[i] = value if labels[i] < 0 else kept
    else:
        for i in range(source.shape[0]):
            kept = source[i]
            destination[i] = value if labels[i] < 0 else kept


@kernel(*(f"void({t}[:, :, :, ::1], int64[::1], int64[::1], int64[::1], {t}[:, :, :, ::1])" for t in _UNSIGNED))
def pick(source: Any, rows0: Any, rows1: Any, rows2: Any, destination: Any) -> None:
    """``destination[c, i, j, k] = source[c, rows0[i], rows1[j], rows2[k]]``."""
    for c in range(destination.shape[0]):
        for i in range(destination.shape[1]):
            for j in range(destination.shape[2]):
                row = source[c, rows0[i], rows1[j]]
                out = destination[c, i, j]
                for k in range(destination.shape[3]):
                    out[k] = row[np.uint64(rows2[k])]
