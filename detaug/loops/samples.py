"""detaug's transforms in a plain torch Dataset, and applied to one sample of another library's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from detaug.seeding.tree import SeedTree, spawn_key_element


class Augmented(Dataset[Any]):
    """A data set whose samples are transformed; sample i of an epoch is the same in every process
    and for any DataLoader.

    Args:
        dataset: gives dicts, such as ``{"image": (C, X, Y[, Z]), "segmentation": ...}``.
        transform: is called as ``transform(**sample, rng=generator)``: any of `detaug.transforms`.
        seed: the Generator of sample i is that of (epoch, i) in its seed tree.
    """

    def __init__(
        self, dataset: Any, transform: Callable[..., Any], seed: int | Sequence[int]
    ) -> None:
        self.dataset = dataset
        self.transform = transform
        self._tree = SeedTree(seed)
        # Shared, so that workers that live from epoch to epoch (persistent_workers) read it too.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()  # type: ignore[no-untyped-call]

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass, 0 at first. Call it before every pass."""
        self._epoch.fill_(spawn_key_element("epoch", epoch))

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        """Sample `index`, from 0 on. TypeError: the data set gives no dict."""
        number = index + len(self) if index < 0 else index
        sample = self.dataset[number]
        if not isinstance(sample, Mapping):
            raise TypeError(
                f"Augmented needs samples that are dicts, such as {{'image': ..., 'segmentation': "
                f"...}}, and "
                f"{type(self.dataset).__name__} gives {type(sample).__name__}"
            )
        return self.transform(**sample, rng=self._tree.generator(int(self._epoch), number))


def with_float_images(arrays: Mapping[str, Any], roles: Mapping[str, str]) -> dict[str, Any]:
    """A sample's arrays or plain tensors, where images of integers are float32."""
    return {
        name: _in_floats(array) if roles[name] == "image" else array
        for name, array in arrays.items()
    }


def _in_floats(array: Any) -> Any:
    if isinstance(array, torch.Tensor):
        return array if array.is_floating_point() else array.float()
    return array if array.dtype.kind == "f" else array.astype(np.float32)
