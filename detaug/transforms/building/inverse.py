"""Takes what lies in a transformed sample's frame back into the frame it came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from detaug.transforms.building.roles import by_role, sample_roles
from detaug.transforms.building.workspace import VOXEL_KEYS, Workspace

if TYPE_CHECKING:
    from detaug.transforms.building.base import Params, Transform

_NOTHING_IS_DRAWN = np.random.Generator(np.random.PCG64DXSM(0))


class Step(NamedTuple):
    """A transform that undoes another one.

    Attributes:
        transform: what is applied.
        params: with which; None: those that follow from the shapes alone.
        space: the spatial shape of what it is applied to; None: any.
    """

    transform: Transform
    params: Params | None
    space: tuple[int, ...] | None = None


class Inverse:
    """Undoes the geometry of a transform with known params: called as ``inverse(image=..., segmentation=..., keypoints=...)``.

    What `detaug.transforms.Transform.inverse` returns. Predictions made in the frame of the transformed sample, as images
    (probabilities, of any number of channels) or labels, come back into the frame of the original one.

    Args:
        steps: what is applied, in order.
        keys: as those of the transform.
    """

    def __init__(self, steps: Sequence[Step], keys: Mapping[str, str | None]) -> None:
        self._steps = list(steps)
        self._keys = keys

    def __call__(self, **arrays: Any) -> dict[str, Any]:
        """The same keys, in the original frame.

        Args:
            arrays: as a transform takes them (see `detaug.transforms.Transform`): ``image`` (C, X, Y[, Z]) and so on.

        Raises:
            ValueError: arrays of another spatial shape than the transformed sample had.
        """

        def undone(sample: dict[str, Any]) -> dict[str, Any]:
            workspace = Workspace(sample)
            for step in self._steps:
                shapes = workspace.shapes()
                _check_space(shapes, step.space)
                params = step.transform.sample(_NOTHING_IS_DRAWN, shapes) if step.params is None else step.params
                step.transform.apply_in(workspace, params)
            return workspace.result()

        return by_role(arrays, sample_roles(arrays, self._keys), undone)

    def __repr__(self) -> str:
        return f"Inverse({', '.join(type(step.transform).__name__ for step in self._steps)})"


def _check_space(shapes: Mapping[str, Any], space: tuple[int, ...] | None) -> None:
    for key in VOXEL_KEYS:
        if space is not None and shapes.get(key) is not None and tuple(shapes[key][1:]) != space:
            raise ValueError(
                f"{key} has the spatial shape {tuple(shapes[key][1:])}; the sample that is to be undone had {space} here"
            )
