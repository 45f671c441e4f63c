"""Samples collated to a batch: torch's default collation, and MONAI's if MONAI is loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch.utils.data._utils.collate import collate, default_collate_fn_map


def collated(samples: list[Any], collate_fn: Callable[[list[Any]], Any] | None) -> Any:
    """Return the batch of these samples.

    Args:
        samples: the samples.
        collate_fn: the user's; None for `default_collate`.

    Raises:
        RuntimeError: it raises StopIteration.
    """
    try:
        return (collate_fn or default_collate)(samples)
    except StopIteration as error:
        raise no_end(
            f"collate_fn ({collate_name(collate_fn) or collate_fn}) of {len(samples)} samples"
        ) from error


def collate_name(collate_fn: Callable[..., Any] | None) -> str:
    """Return the name by which a state dict knows the function."""
    if collate_fn is None:
        return "default_collate"
    return getattr(collate_fn, "__qualname__", "")


def no_end(subject: str) -> RuntimeError:
    """Return the error that replaces a StopIteration.

    A StopIteration would look like the epoch's end: its other batches would be lost silently.

    Args:
        subject: names what raised it, for the message.
    """
    return RuntimeError(
        f"{subject} raised StopIteration. Was it a next(...) without a match? A data set ends "
        "where its length says"
    )


def default_collate(samples: list[Any]) -> Any:
    """Return the batch as torch's or MONAI's default collation makes it.

    It is `torch.utils.data.default_collate`, which users extend by its `default_collate_fn_map`,
    and MONAI's `list_data_collate` for the samples of MONAI's data sets: lists of dicts, and
    MetaTensors.
    """
    # A copy, made each time: users extend torch's map, at any time.
    functions = dict(default_collate_fn_map)
    meta_tensor = getattr(sys.modules.get("monai.data.meta_tensor"), "MetaTensor", None)
    item_types: tuple[Any, ...] = (Mapping,)
    if meta_tensor is not None:
        functions[meta_tensor] = _collate_meta_tensors
        item_types = (Mapping, meta_tensor)
    if all(_is_list_of(sample, item_types) for sample in samples):
        # A random crop gives several items of each sample.
        items = []
        for sample in samples:
            items += sample
        return collate(items, collate_fn_map=functions)
    return collate(samples, collate_fn_map=functions)


def _is_list_of(sample: Any, item_types: tuple[Any, ...]) -> bool:
    return isinstance(sample, list) and all(isinstance(item, item_types) for item in sample)


def _collate_meta_tensors(tensors: list[Any], *, collate_fn_map: Any = None) -> Any:
    """Collate as MONAI does, without the addresses of transforms.

    Transforms are then known by their class, and not by the address of the copy that this process
    called: the batch is the same wherever it is made, and the user's own transforms can invert it.
    """
    from monai.data.utils import collate_meta_tensor_fn

    batch = collate_meta_tensor_fn(tensors, collate_fn_map=collate_fn_map)  # type: ignore[no-untyped-call]
    batch.applied_operations = _without_addresses(batch.applied_operations)
    return batch


def _without_addresses(operations: Any) -> Any:
    from monai.utils.enums import TraceKeys

    if isinstance(operations, list):
        return [_without_addresses(operation) for operation in operations]
    if not isinstance(operations, dict):
        return operations
    known = {key: _without_addresses(value) for key, value in operations.items()}
    if TraceKeys.ID in known:
        known[TraceKeys.ID] = TraceKeys.NONE
    return known
