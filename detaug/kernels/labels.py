"""Passes over label volumes."""

from __future__ import annotations

from typing import Any

from detaug.kernels.compiling import kernel

_TYPES = ("uint8", "uint16", "uint32", "uint64", "float32", "float64")


@kernel(*(f"void({t}[::1], {t}, {t})" for t in _TYPES))
def replace_label(labels: Any, label: Any, replacement: Any) -> None:
    """Another value in place of one label. Integers are viewed as unsigned ones of the same width."""
    for i in range(labels.shape[0]):
        value = labels[i]
        labels[i] = replacement if value == label else value
