"""Transforms that were written for another library, as they are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

from detaug.seeding.generators import preserved_global_rngs, reseed_global_rngs
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, Params, Shapes, Transform
from detaug.transforms.building.checks import unmasked
from detaug.transforms.building.gate import KEY, VOXEL_KEYS, takes
from detaug.transforms.building.workspace import Workspace


class ForeignTransform(Transform):
    """A transform of batchgeneratorsv2, or any callable of that kind, among those of detaug.

    It is called with the sample's tensors as keyword arguments and gives a dictionary of tensors.
    While it runs, the global generators of Python, NumPy and torch are seeded from the key in its
    params; afterwards they are as they were. So it gives the same arrays for the same params, as
    long as it draws from these alone and keeps nothing from call to call; its bytes may depend on
    the CPU, and what it draws is not known before it runs.

    Args:
        transform: gets ``image``, ``segmentation`` ... as far as there are any, float32 and labels
            of their own dtype. It may write into them.
        shapes_after: from the shapes before, by key, those after: for a transform whose output has
            others.

    Params: ``{"key": 64 bits}``.

    Raises:
        TypeError: from `apply`, if the transform gives no dictionary, or no tensors or (unmasked)
            arrays in it.
        ValueError: from `apply`, if the output has other shapes than ``shapes_after`` says.
    """

    def __init__(
        self,
        transform: Callable[..., Mapping[str, Any]],
        shapes_after: Callable[[dict[str, Any]], Mapping[str, Any]] | None = None,
    ) -> None:
        if not callable(transform):
            raise TypeError(f"transform must be callable, got {transform!r}")
        self.transform = transform
        self.shapes_after = shapes_after

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        return {"key": draws.key(rng)}

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        return (
            dict(shapes)
            if self.shapes_after is None
            else {**shapes, **self.shapes_after(dict(shapes))}
        )

    @takes(key=KEY)
    def change(self, workspace: Workspace, params: Params) -> None:
        given = {
            key: torch.from_numpy(workspace.writable(key)) for key in VOXEL_KEYS if key in workspace
        }
        with preserved_global_rngs():
            reseed_global_rngs(np.random.SeedSequence(params["key"]))
            made = self.transform(**given)
        if not isinstance(made, Mapping):
            raise TypeError(f"{self._name} must give a dictionary, got {type(made).__name__}")
        arrays = {
            key: self._array(key, made[key]) for key in VOXEL_KEYS if made.get(key) is not None
        }
        for key, array in arrays.items():
            # its memory may be the transform's own, unless it is what the transform was given
            mine = (
                key in given
                and not isinstance(array, list)
                and np.shares_memory(array, given[key].numpy())
            )
            workspace.put(key, array, owned=mine)

    @property
    def _name(self) -> str:
        return getattr(self.transform, "__qualname__", type(self.transform).__name__)

    def _array(self, key: str, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self._array(key, each) for each in value]
        if not isinstance(value, (torch.Tensor, np.ndarray)):
            raise TypeError(
                f"{self._name} must give tensors or arrays, got {type(value).__name__} as {key}"
            )
        if isinstance(value, torch.Tensor):
            return value.detach().numpy()
        return unmasked(f"{key} of {self._name}", value)
