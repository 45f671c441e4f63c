"""A transform over a whole batch as batchgenerators has it: ``data`` with ``seg`` or ``target``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from detaug.context import current
from detaug.transforms import draws

if TYPE_CHECKING:
    from detaug.transforms.base import Transform

# a batch's key -> a sample's key
_SAMPLE_KEYS = {
    "data": "image",
    "seg": "segmentation",
    "target": "segmentation",
    "regression_target": "regression_target",
    "keypoints": "keypoints",
    "bbox": "bbox",
}


def is_batch(arrays: Mapping[str, Any]) -> bool:
    """Whether this is a batch (it has ``data``) rather than one sample (``image``, ``segmentation`` ...).

    Raises:
        ValueError: it has both, or both ``seg`` and ``target``.
    """
    if "data" not in arrays:
        return False
    if "image" in arrays or "segmentation" in arrays:
        raise ValueError("pass a batch (data, seg or target) or a sample (image, segmentation), not a mixture of both")
    if arrays.get("seg") is not None and arrays.get("target") is not None:
        raise ValueError("a batch may have seg or target as its segmentation, not both")
    return True


def apply_to_batch(transform: Transform, batch: Mapping[str, Any], rng: np.random.Generator | None) -> dict[str, Any]:
    """Each sample by itself, with a Generator of its own: of the running augmenter's sample children, or, with ``rng``,
    one keyed by a draw from it."""
    count = len(batch["data"])
    if count == 0:
        raise ValueError("the batch is empty: data has no samples")
    names = {key: name for key, name in _SAMPLE_KEYS.items() if batch.get(key) is not None}
    for key in names:
        if len(batch[key]) != count:
            raise ValueError(f"data has {count} samples, but {key} has {len(batch[key])}")
    results = []
    for index in range(count):
        sample = {name: batch[key][index] for key, name in names.items()}
        generator = draws.generator_of(draws.key(rng)) if rng is not None else _next_generator(transform)
        results.append(transform(rng=generator, **sample))
    changed = {key: _joined([result[name] for result in results], batch[key]) for key, name in names.items()}
    added = {
        key: [result[key] for result in results] for key in results[0] if key not in names.values() and key not in batch
    }
    return {**batch, **changed, **added}


def _next_generator(transform: Transform) -> np.random.Generator:
    try:
        return current().next_sample_generator()
    except RuntimeError:
        raise RuntimeError(
            f"{type(transform).__name__} was called without rng= and outside a DeterministicAugmenter: pass the Generator "
            "to draw from. There is no fall-back to a global random state."
        ) from None


def _joined(samples: list[Any], given: Any) -> Any:
    """Samples as one batch: stacked if the batch was an array, level by level for deep supervision, else a list."""
    if isinstance(samples[0], list):
        return [_joined([sample[level] for sample in samples], given) for level in range(len(samples[0]))]
    if isinstance(given, (list, tuple)):
        return type(given)(samples)
    if isinstance(samples[0], torch.Tensor):
        return torch.stack(samples)
    return np.stack(samples)
