"""What `audit` accepts as a sample batch, and a fresh copy of it for every run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

INPUT_KEYS = ("data", "image", "input", "x")
TARGET_KEYS = ("target", "segmentation", "seg", "label", "y")


def input_and_target(batch: Any) -> tuple[Any, Any]:
    """The two halves of a batch.

    Raises:
        TypeError: neither a mapping nor a tuple or list.
        ValueError: a tuple or list of another length than two, or a mapping without an input or a target.
    """
    if isinstance(batch, Mapping):
        return _entry(batch, INPUT_KEYS, "input"), _entry(batch, TARGET_KEYS, "target")
    if not isinstance(batch, (tuple, list)):
        raise TypeError(
            f"sample_batch must be (input, target) or a dict such as {{'data': ..., 'target': ...}}, "
            f"got {type(batch).__name__}"
        )
    if len(batch) != 2:
        raise ValueError(f"sample_batch must be (input, target), got {len(batch)} item(s)")
    return batch[0], batch[1]


def on_device(value: Any, device: torch.device) -> Any:
    """A copy whose tensors are on the device; arrays become tensors, other objects stay what they are."""
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        value = torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, torch.Tensor):
        # a step may write into its input
        return value.detach().clone().to(device).requires_grad_(value.requires_grad)
    if isinstance(value, dict):
        return {key: on_device(item, device) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(on_device(item, device) for item in value))
    if isinstance(value, (list, tuple)):
        return type(value)(on_device(item, device) for item in value)
    return value


def _entry(batch: Mapping[Any, Any], names: tuple[str, ...], what: str) -> Any:
    for name in names:
        if name in batch:
            return batch[name]
    allowed = ", ".join(repr(name) for name in names)
    raise ValueError(
        f"sample_batch has no {what}: its keys are {list(batch)}, and the {what} may be under {allowed}; "
        "or pass (input, target)"
    )
