"""Page-locked memory for asynchronous copies to a GPU."""

from __future__ import annotations

from typing import Any

import torch


def pin(batch: Any) -> Any:
    """Copy every CPU tensor of nested dicts, lists and tuples into torch's pinned allocator.

    The slots themselves are not registered: an asynchronous copy may still be reading one when its last array is
    collected, and torch's allocator does not track foreign memory.
    """
    if isinstance(batch, torch.Tensor):
        return batch.pin_memory() if batch.device.type == "cpu" and not batch.is_pinned() else batch
    if isinstance(batch, dict):
        for key in batch:
            batch[key] = pin(batch[key])
        return batch
    if isinstance(batch, list):
        batch[:] = [pin(item) for item in batch]
        return batch
    if isinstance(batch, tuple):
        pinned = [pin(item) for item in batch]
        return type(batch)(*pinned) if hasattr(batch, "_fields") else type(batch)(pinned)
    return batch


def gpu_to_pin_for(pin_memory: bool) -> int | None:
    """The current CUDA device where pinning was asked for and there is one; else None."""
    return torch.cuda.current_device() if pin_memory and torch.cuda.is_available() else None
