"""Samples put together to a batch: torch's default collation, and MONAI's where MONAI is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data._utils.collate import collate, default_collate_fn_map


def collated(samples: list[Any], collate_fn: Callable[[list[Any]], Any] | None) -> Any:
    """The batch of these samples, by the user's `collate_fn`, else by `default_collate`.
    RuntimeError: it raises StopIteration.
    """
    try:
        return (collate_fn or default_collate)(samples)
    except StopIteration as error:
        raise no_end(
            f"collate_fn ({collate_name(collate_fn) or collate_fn}) of {len(samples)} samples"
        ) from error


def collate_name(collate_fn: Callable[..., Any] | None) -> str:
    """By which a state dict knows it."""
    return "default_collate" if collate_fn is None else getattr(collate_fn, "__qualname__", "")


def no_end(what: str) -> RuntimeError:
    """Replaces a StopIteration, which would look like the epoch's end: the rest would be lost
    silently.
    """
    return RuntimeError(
        f"{what} raised StopIteration. Was it a next(...) without a match? A data set ends where "
        "its length says"
    )


def default_collate(samples: list[Any]) -> Any:
    """As `torch.utils.data.default_collate`, which users extend by its `default_collate_fn_map`;
    and as MONAI's `list_data_collate` for what MONAI's data sets give: lists of dicts, and
    MetaTensors.
    """
    functions = dict(default_collate_fn_map)
    meta_tensor = getattr(sys.modules.get("monai.data.meta_tensor"), "MetaTensor", None)
    if meta_tensor is not None:
        functions[meta_tensor] = _collate_meta_tensors
    several = (Mapping,) if meta_tensor is None else (Mapping, meta_tensor)
    if all(
        isinstance(sample, list) and all(isinstance(each, several) for each in sample)
        for sample in samples
    ):
        samples = [each for sample in samples for each in sample]  # a random crop's, of each item
    return collate(samples, collate_fn_map=functions)


def _collate_meta_tensors(tensors: list[Any], *, collate_fn_map: Any = None) -> Any:
    """As MONAI's; but transforms are known by their class, and not by the address of the copy that
    this process called: so they are the same wherever the batch is made, and the user's own can
    invert them.
    """
    from monai.data.utils import collate_meta_tensor_fn

    batch = collate_meta_tensor_fn(tensors, collate_fn_map=collate_fn_map)  # type: ignore[no-untyped-call]
    batch.applied_operations = _without_addresses(batch.applied_operations)
    return batch


def _without_addresses(operations: Any) -> Any:
    from monai.utils.enums import TraceKeys

    if isinstance(operations, list):
        return [_without_addresses(each) for each in operations]
    if not isinstance(operations, dict):
        return operations
    known = {key: _without_addresses(value) for key, value in operations.items()}
    return {**known, TraceKeys.ID: TraceKeys.NONE} if TraceKeys.ID in known else known
