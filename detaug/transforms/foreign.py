"""Transforms that were written for another library, used unchanged."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.random import Generator

from detaug.seeding.generators import preserved_global_rngs, reseed_global_rngs
from detaug.transforms.building import draws
from detaug.transforms.building.base import Context, Params, Shapes, Transform
from detaug.transforms.building.checks import unmasked
from detaug.transforms.building.gate import KEY, VOXEL_KEYS, takes
from detaug.transforms.building.workspace import Workspace


class ForeignTransform(Transform):
    """A transform of batchgeneratorsv2, or a callable like one, among those of detaug.

    It is called with the sample's tensors as keyword arguments and returns a dict of tensors. While
    it runs, the global generators of Python, NumPy and torch are seeded from the key in its params;
    afterwards they are restored. It returns the same arrays for the same params if it draws from
    these generators only and keeps no state between calls. Its bytes may depend on the CPU, and its
    draws are not known before it runs.

    Args:
        transform: called with those of ``image``, ``segmentation`` ... that exist: images as
            float32, labels in their own dtype. It may write to them.
        shapes_after: returns the shapes after the transform, by key, from those before; needed if
            the transform changes them.

    Params: ``{"key": 64 bits}``.

    Raises:
        TypeError: from `apply`, the transform returns no dict, or other values than tensors and
            (unmasked) arrays in it.
        ValueError: from `apply`, the output has other shapes than ``shapes_after`` returned.
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

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        return {"key": draws.key(rng)}

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        # If the shapes change all the same, `apply_in` raises an error that names the argument.
        if self.shapes_after is None:
            return dict(shapes)
        return {**shapes, **self.shapes_after(dict(shapes))}

    @takes(key=KEY)
    def change(self, workspace: Workspace, params: Params) -> None:
        inputs = {}
        for key in VOXEL_KEYS:
            if key in workspace:
                inputs[key] = torch.from_numpy(workspace.writable(key))
        # A foreign transform takes no Generator: it draws from global ones, seeded here.
        with preserved_global_rngs():
            reseed_global_rngs(np.random.SeedSequence(params["key"]))
            outputs = self.transform(**inputs)
        # The usual cause is a function that changes its arguments and returns nothing.
        if not isinstance(outputs, Mapping):
            raise TypeError(f"{self._name} must give a dictionary, got {type(outputs).__name__}")
        # All are read before any is put: an error leaves the workspace as it was.
        arrays = {}
        for key in VOXEL_KEYS:
            if outputs.get(key) is not None:
                arrays[key] = self._array(key, outputs[key])
        for key, array in arrays.items():
            # Other memory than that of the input may belong to the transform.
            is_input_memory = (
                key in inputs
                and not isinstance(array, list)
                and np.shares_memory(array, inputs[key].numpy())
            )
            workspace.put(key, array, owned=is_input_memory)

    @property
    def _name(self) -> str:
        return getattr(self.transform, "__qualname__", type(self.transform).__name__)

    def _array(self, key: str, value: Any) -> Any:
        """Return an output as an array, or as a list of arrays for deep supervision."""
        if isinstance(value, (list, tuple)):
            return [self._array(key, level) for level in value]
        if not isinstance(value, (torch.Tensor, np.ndarray)):
            raise TypeError(
                f"{self._name} must give tensors or arrays, got {type(value).__name__} as {key}"
            )
        if isinstance(value, torch.Tensor):
            return value.detach().numpy()
        return unmasked(f"{key} of {self._name}", value)
