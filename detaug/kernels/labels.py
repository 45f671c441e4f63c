"""Passes over label volumes. Integers are viewed as unsigned ones of the same width."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.kernels.compiling import kernel

_UNSIGNED = ("uint8", "uint16", "uint32", "uint64")


@kernel(*(f"void({t}[::1], {t}, {t})" for t in (*_UNSIGNED, "float32", "float64")))
def replace_label(labels: Any, label: Any, replacement: Any) -> None:
    """Another value in place of one label."""
    for i in range(labels.shape[0]):
        value = labels[i]
        labels[i] = replacement if value == label else value


@kernel(*(f"void({t}[:, :, :, ::1], int64[::1], int64[::1], int64[::1], {t}[:, :, :, ::1])" for t in _UNSIGNED))
def pick(source: Any, rows0: Any, rows1: Any, rows2: Any, destination: Any) -> None:
    """``destination[c, i, j, k] = source[c, rows0[i], rows1[j], rows2[k]]``."""
    for c in range(destination.shape[0]):
        for i in range(destination.shape[1]):
            for j in range(destination.shape[2]):
                row = source[c, rows0[i], rows1[j]]
                out = destination[c, i, j]
                for k in range(destination.shape[3]):
                    out[k] = row[np.uint64(rows2[k])]  # unsigned: a signed index would be tested for its sign
