"""detaug's transforms in a plain torch Dataset, and for single samples of other libraries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from detaug.seeding.tree import SeedTree, spawn_key_element


class Augmented(Dataset[Any]):
    """A data set with transformed samples, which do not depend on the process or the DataLoader.

    Args:
        dataset: a map-style data set of dicts, such as ``{"image": (C, X, Y[, Z]), "segmentation":
            (C, X, Y[, Z])}``.
        transform: any of `detaug.transforms`, called as ``transform(**sample, rng=generator)``.
        seed: a non-negative integer or a list of them. Sample i of an epoch has the Generator of
            (epoch, i) in this seed's tree.
    """

    def __init__(
        self, dataset: Any, transform: Callable[..., Any], seed: int | Sequence[int]
    ) -> None:
        self.dataset = dataset
        self.transform = transform
        self._tree = SeedTree(seed)
        # In shared memory: workers that live from epoch to epoch (persistent_workers) read it too.
        epoch = torch.zeros((), dtype=torch.int64)
        self._epoch = epoch.share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass, which is 0 at first. Call it before every pass."""
        self._epoch.fill_(spawn_key_element("epoch", epoch))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Return sample `index`; a negative one counts from the end.

        Raises:
            TypeError: the sample is not a dict.
        """
        if index < 0:
            # The same sample must have the same Generator under both of its indices.
            index += len(self)
        sample = self.dataset[index]
        if not isinstance(sample, Mapping):
            raise TypeError(
                "Augmented needs samples that are dicts, such as {'image': ..., 'segmentation': "
                f"...}}, and {type(self.dataset).__name__} gives {type(sample).__name__}"
            )
        return self.transform(**sample, rng=self._tree.generator(int(self._epoch), index))


def with_float_images(arrays: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """Return a sample's arrays or plain tensors, with images of integers as float32.

    Args:
        arrays: (C, X, Y[, Z]), by name.
        roles: "image" or "segmentation", by the same names.
    """
    result = dict(arrays)
    for name, array in arrays.items():
        if roles[name] == "image":
            result[name] = _as_float(array)
    return result


def _as_float(array: Any) -> Any:
    """Return an array or tensor as it is if it has floats, else as float32."""
    if isinstance(array, torch.Tensor):
        if array.is_floating_point():
            return array
        return array.float()
    if array.dtype.kind == "f":
        return array
    return array.astype(np.float32)
