"""Digests of what modules take and give, to compare two runs."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from detaug.fingerprints import dense, fingerprint


def digest(value: Any) -> str:
    """Of the tensors, arrays, numbers and strings in nested dicts, lists, tuples and dataclasses."""
    return fingerprint(list(_leaves(value, "")))


def _leaves(value: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield where, dense(value)
    elif isinstance(value, (np.ndarray, bool, int, float, complex, str, np.generic)):
        yield where, value
    elif isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], f"{where}[{key!r}]")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from _leaves(item, f"{where}[{i}]")
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for each in dataclasses.fields(value):
            yield from _leaves(getattr(value, each.name), f"{where}.{each.name}")
