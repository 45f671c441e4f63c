"""One batch from parts of several collated batches.

Accelerate gives each rank a slice of a batch (split_batches), or fills a rank's last batch with
samples of the first batches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch


class Part(NamedTuple):
    """Some samples of a batch.

    Attributes:
        batch: the whole batch, collated.
        size: the number of its samples.
        indices: of the samples meant, 0 ... size - 1.
    """

    batch: Any
    size: int
    indices: list[int]


def gathered(parts: Sequence[Part], is_default: bool) -> Any:
    """Return the samples of all parts as one collated batch.

    Tensors and arrays ``(size, ...)`` are indexed along their first axis, mappings entry by entry.
    A list or tuple is either a collection of these, or has one entry for each sample.

    Args:
        parts: of batches with the same structure.
        is_default: torch's `default_collate` made the batches. Its lists have one entry for each
            sample only if the entries are texts.

    Raises:
        ValueError: the batch does not show what belongs to which sample.
    """
    first = parts[0].batch
    if isinstance(first, (torch.Tensor, np.ndarray)):
        return _indexed(parts)
    if isinstance(first, Mapping):
        return {name: gathered(_entries(parts, name), is_default) for name in first}
    if not isinstance(first, (list, tuple)):
        raise _unclear(parts[0])
    if _is_collection(parts[0], is_default):
        values = [gathered(_entries(parts, index), is_default) for index in range(len(first))]
    else:
        # A list with one entry for each sample, such as their names.
        values = []
        for part in parts:
            values.extend(part.batch[index] for index in part.indices)
    if hasattr(first, "_fields"):
        # A named tuple takes its fields as arguments.
        return type(first)(*values)
    return type(first)(values)


def _indexed(parts: Sequence[Part]) -> Any:
    """Return the samples of tensors or arrays ``(size, ...)``, concatenated."""
    for part in parts:
        if part.batch.ndim == 0 or len(part.batch) != part.size:
            raise _unclear(part)
    slices = [part.batch[part.indices] for part in parts]
    if isinstance(slices[0], torch.Tensor):
        return torch.cat(slices)
    return np.concatenate(slices)


def _entries(parts: Sequence[Part], key: Any) -> list[Part]:
    """Return the parts with one entry of their batches: of a mapping, list or tuple."""
    return [part._replace(batch=part.batch[key]) for part in parts]


def _is_collection(part: Part, is_default: bool) -> bool:
    """Return whether a list's entries are arrays of the batch, and not one for each sample."""
    entries = part.batch
    can_be_samples = len(entries) == part.size
    if is_default:
        has_only_texts = all(isinstance(entry, (str, bytes)) for entry in entries)
        return not (can_be_samples and has_only_texts)
    can_be_collection = all(_has_samples(entry, part.size) for entry in entries)
    # A user's collate_fn may return either. If both readings fit, or neither, nobody can tell.
    if can_be_samples == can_be_collection:
        raise _unclear(part)
    return can_be_collection


def _has_samples(value: Any, size: int) -> bool:
    """Return whether a value, or each value in it, has an entry for each of `size` samples."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return value.ndim > 0 and len(value) == size
    if isinstance(value, Mapping):
        return all(_has_samples(entry, size) for entry in value.values())
    if isinstance(value, (list, tuple)):
        return len(value) == size or all(_has_samples(entry, size) for entry in value)
    return False


def _unclear(part: Part) -> ValueError:
    """Return the error for a batch that does not show what belongs to which sample."""
    kind = type(part.batch).__name__
    return ValueError(
        f"{len(part.indices)} of the {part.size} samples of a batch were asked for, to share it "
        f"among ranks or to fill a rank's last batch, and its {kind} does not say what belongs to "
        "which sample: tensors and arrays must have one entry for each along their first axis. "
        "Pass drop_last=True, or a batch_size that divides the samples among all ranks, or a "
        "collate_fn that returns a dict of tensors"
    )
