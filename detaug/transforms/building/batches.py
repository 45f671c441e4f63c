"""A transform over a whole batch as batchgenerators has it: ``data`` with ``seg`` or ``target``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from detaug.seeding.current import current
from detaug.transforms.building import draws
from detaug.transforms.building.overlaps import may_overlap
from detaug.transforms.building.roles import batch_roles

if TYPE_CHECKING:
    from detaug.transforms.building.base import Transform


def apply_to_batch(
    transform: Transform, batch: Mapping[str, Any], rng: np.random.Generator | None, in_place: bool = False
) -> dict[str, Any]:
    """Each sample separately, with its own Generator: of the running augmenter's sample children, or, with ``rng``,
    one keyed by a draw from it. ``in_place``: the batch may be written into.

    Raises:
        ValueError: no samples, or not the same number of them under every key; and as `Transform.__call__`.
    """
    image = next(name for name in batch if transform.keys.get(name, name) == "data" or name == "data")
    count = len(batch[image])
    if count == 0:
        raise ValueError(f"the batch is empty: {image} has no samples")
    roles = batch_roles(batch, transform.keys)
    for name in roles:
        if len(batch[name]) != count:
            raise ValueError(f"{image} has {count} samples, but {name} has {len(batch[name])}")
    samples = [{name: batch[name][index] for name in roles} for index in range(count)]
    in_place = in_place and not may_overlap([samples, [batch[name] for name in batch if name not in roles]])
    results = []
    for sample in samples:
        generator = draws.generator_of(draws.key(rng)) if rng is not None else _next_generator(transform)
        results.append(transform.of_sample(sample, roles, generator, in_place))
    changed = {}
    for name in roles:
        stayed = in_place and all(result[name] is sample[name] for result, sample in zip(results, samples, strict=True))
        changed[name] = batch[name] if stayed else _joined([result[name] for result in results], batch[name])
    added = {name: [result[name] for result in results] for name in results[0] if name not in batch}
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
