"""Volumes as stacks of planes, for transforms that leave the first axis alone (as nnU-Net's dummy
2-D does).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.transforms.building.base import Context, Params, Shapes, Transform
from detaug.transforms.building.gate import integer, needed_if, takes
from detaug.transforms.building.workspace import Workspace

# where the number of channels is kept while the planes are channels
_COUNTS = {
    "image": "nchannels_img",
    "segmentation": "nchannels_seg",
    "regression_target": "nchannels_regr_trg",
}


class Convert3DTo2D(Transform):
    """Makes the planes of (C, X, Y, Z) arrays channels: (C · X, Y, Z), channel c's plane x being
    number ``c · X + x``.

    The numbers of channels wait in ``nchannels_img``, ``nchannels_seg`` and ``nchannels_regr_trg``
    until `Convert2DTo3D`. No voxel is copied.

    Params: ``{}``.

    Raises:
        ValueError: an array that is not 3-D.
    """

    spatial_dims = 3

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        shapes = self.output_shapes(workspace.shapes(), params)
        for key, count in _COUNTS.items():
            if key in workspace:
                volume = workspace.lazy(key)
                if volume is not None:
                    workspace.put(key, volume.planes_as_channels(), owned=False)
                else:
                    workspace.put_reshaped(key, workspace[key].reshape(shapes[key]))
                workspace.put(count, shapes[count])

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        for key, count in _COUNTS.items():
            shape = shapes.get(key)
            if shape is not None:
                if len(shape) != 4:
                    raise ValueError(
                        f"Convert3DTo2D makes planes of volumes: {key} must be (C, X, Y, Z), got "
                        f"{tuple(shape)}"
                    )
                changed |= {key: (shape[0] * shape[1], *shape[2:]), count: int(shape[0])}
        return {**shapes, **changed}


class Convert2DTo3D(Transform):
    """Undoes `Convert3DTo2D`: its channels are planes again.

    Params: ``{"nchannels_img", "nchannels_seg", "nchannels_regr_trg"}`` of those that there are.

    Raises:
        ValueError: `Convert3DTo2D` did not come before, or the number of channels changed in
            between.
    """

    spatial_dims = 2

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Context) -> Params:
        return {count: shapes[count] for count in _COUNTS.values() if count in shapes}

    @takes(**{count: needed_if(lambda _: False, integer(1)) for count in _COUNTS.values()})
    def change(self, workspace: Workspace, params: Params) -> None:
        shapes = self.output_shapes(workspace.shapes(), params)
        for key, count in _COUNTS.items():
            if key in workspace:
                workspace.put_reshaped(key, workspace[key].reshape(shapes[key]))
            if workspace.get(count) is not None:
                workspace.remove(count)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        result = {key: shape for key, shape in shapes.items() if key not in _COUNTS.values()}
        for key, count in _COUNTS.items():
            shape, channels = shapes.get(key), params.get(count, shapes.get(count))
            if shape is not None:
                if channels is None or len(shape) != 3 or shape[0] % channels:
                    raise ValueError(
                        f"Convert2DTo3D cannot make volumes of {key} of shape {tuple(shape)}: "
                        "Convert3DTo2D must come before (it "
                        f"leaves the number of channels in {count}, here {channels}), and the "
                        "channels must stay as many"
                    )
                result[key] = (channels, shape[0] // channels, *shape[1:])
        return result
