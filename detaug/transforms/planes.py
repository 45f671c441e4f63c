"""Volumes as stacks of planes, for transforms that must not change the first axis.

nnU-Net calls it dummy 2-D augmentation.
"""

from __future__ import annotations

from typing import Any

from numpy.random import Generator

from detaug.transforms.building.base import Context, Params, Shapes, Transform
from detaug.transforms.building.gate import ParamContext, integer, needed_if, takes
from detaug.transforms.building.workspace import Workspace

#: The key that holds the number of channels while the planes are channels.
_COUNT_KEYS = {
    "image": "nchannels_img",
    "segmentation": "nchannels_seg",
    "regression_target": "nchannels_regr_trg",
}


class Convert3DTo2D(Transform):
    """The planes of (C, X, Y, Z) arrays as channels: (C · X, Y, Z).

    Plane x of channel c has the index ``c · X + x``. The numbers of channels are kept in
    ``nchannels_img``, ``nchannels_seg`` and ``nchannels_regr_trg`` until `Convert2DTo3D`. No voxel
    is copied.

    Params: ``{}``.

    Raises:
        ValueError: an array that is not 3-D.
    """

    spatial_dims = 3

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        shapes = self.output_shapes(workspace.shapes(), params)
        for key, count_key in _COUNT_KEYS.items():
            if key not in workspace:
                continue
            volume = workspace.lazy(key)
            # A lazy volume stays lazy: it need not be read to be seen as planes.
            if volume is not None:
                workspace.put(key, volume.planes_as_channels(), owned=False)
            else:
                workspace.put_reshaped(key, workspace[key].reshape(shapes[key]))
            workspace.put(count_key, shapes[count_key])

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        changed = dict(shapes)
        for key, count_key in _COUNT_KEYS.items():
            shape = shapes.get(key)
            if shape is None:
                continue
            if len(shape) != 4:
                raise ValueError(
                    f"Convert3DTo2D makes planes of volumes: {key} must be (C, X, Y, Z), got"
                    f" {tuple(shape)}"
                )
            # The number stays among the shapes, for `Convert2DTo3D`, which sees no arrays.
            channels, planes, *plane = shape
            changed[key] = (channels * planes, *plane)
            changed[count_key] = int(channels)
        return changed


def _never(_: ParamContext) -> bool:
    return False


class Convert2DTo3D(Transform):
    """The inverse of `Convert3DTo2D`: its channels become planes again.

    Params: those of ``{"nchannels_img", "nchannels_seg", "nchannels_regr_trg"}`` whose array
    exists.

    Raises:
        ValueError: `Convert3DTo2D` was not applied before, or the number of channels has changed.
    """

    spatial_dims = 2

    def draw(self, rng: Generator, shapes: Shapes, context: Context) -> Params:
        # The counts are params so that descriptions of the applied transforms show them.
        return {key: shapes[key] for key in _COUNT_KEYS.values() if key in shapes}

    @takes(**{key: needed_if(_never, integer(1)) for key in _COUNT_KEYS.values()})
    def change(self, workspace: Workspace, params: Params) -> None:
        shapes = self.output_shapes(workspace.shapes(), params)
        for key, count_key in _COUNT_KEYS.items():
            if key in workspace:
                workspace.put_reshaped(key, workspace[key].reshape(shapes[key]))
            # No transform after this one knows the key.
            if workspace.get(count_key) is not None:
                workspace.remove(count_key)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        changed = {key: shape for key, shape in shapes.items() if key not in _COUNT_KEYS.values()}
        for key, count_key in _COUNT_KEYS.items():
            shape = shapes.get(key)
            if shape is None:
                continue
            # Params written by hand may lack the count; the sample has it.
            channels = params.get(count_key, shapes.get(count_key))
            if channels is None or len(shape) != 3 or shape[0] % channels:
                raise ValueError(
                    f"Convert2DTo3D cannot make volumes of {key} of shape {tuple(shape)}:"
                    " Convert3DTo2D must come before (it leaves the number of channels in"
                    f" {count_key}, here {channels}), and the channels must stay as many"
                )
            changed[key] = (channels, shape[0] // channels, *shape[1:])
        return changed
