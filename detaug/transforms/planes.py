"""Volumes as stacks of planes, for transforms that leave the first axis alone (as nnU-Net's dummy 2-D does)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from detaug.transforms.building.base import Params, Shapes, Transform
from detaug.transforms.building.gate import integer, needed_if, takes
from detaug.transforms.building.stages import Step
from detaug.transforms.building.workspace import Workspace
from detaug.transforms.geometry.points import checked_points

# where the number of channels is kept while the planes are channels
_COUNTS = {"image": "nchannels_img", "segmentation": "nchannels_seg", "regression_target": "nchannels_regr_trg"}
# where coordinates along the first axis are kept meanwhile, and of how many columns they are
_ALONG_FIRST_AXIS = {"keypoints": ("keypoints_first_axis", 1), "bbox": ("bbox_first_axis", 2)}


class Convert3DTo2D(Transform):
    """Makes the planes of (C, X, Y, Z) arrays channels: (C · X, Y, Z), channel c's plane x being number ``c · X + x``.

    ``keypoints`` (N, 3) and ``bbox`` (N, 6) become (N, 2) and (N, 4), their coordinates in the plane: what a transform
    does to the planes it does to all of them alike. Their coordinates along the first axis wait in
    ``keypoints_first_axis`` (N, 1) and ``bbox_first_axis`` (N, 2), the numbers of channels in ``nchannels_img``,
    ``nchannels_seg`` and ``nchannels_regr_trg``, until `Convert2DTo3D`. No voxel is copied.

    Params: ``{}``.

    Raises:
        ValueError: an array that is not 3-D, or points that do not fit.
    """

    def spatial_dims(self) -> int | None:
        return 3

    @takes()
    def change(self, workspace: Workspace, params: Params) -> None:
        for key, count in _COUNTS.items():
            if key in workspace:
                volume = workspace.lazy(key)
                shape = volume.shape if volume is not None else workspace[key].shape
                _check_volume(key, shape)
                if volume is not None:
                    workspace.put(key, volume.planes_as_channels(), owned=False)
                else:
                    _reshape(workspace, key, (shape[0] * shape[1], *shape[2:]))
                workspace.put(count, int(shape[0]))
        for key, (kept, _) in _ALONG_FIRST_AXIS.items():
            if key in workspace:
                rows = workspace[key]
                checked_points(key, rows, 3)
                workspace.put(kept, rows[:, ::3].copy())
                workspace.put(key, np.delete(rows, np.s_[::3], axis=1))

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        changed: dict[str, Any] = {}
        for key, count in _COUNTS.items():
            if shapes.get(key) is not None:
                _check_volume(key, shapes[key])
                changed[key] = (shapes[key][0] * shapes[key][1], *shapes[key][2:])
                changed[count] = shapes[key][0]
        for key, (kept, columns) in _ALONG_FIRST_AXIS.items():
            if shapes.get(key) is not None:
                rows = shapes[key][0]
                changed |= {key: (rows, 2 * columns), kept: (rows, columns)}
        return {**shapes, **changed}

    def undo(self, params: Params, shapes: Shapes | None) -> list[Step]:
        return [Step(Convert2DTo3D(), None)]


class Convert2DTo3D(Transform):
    """Undoes `Convert3DTo2D`: its channels are planes again.

    Params: ``{"nchannels_img", "nchannels_seg", "nchannels_regr_trg"}`` of those that there are.

    Raises:
        ValueError: `Convert3DTo2D` did not come before, or the number of channels (or of points) changed in between.
    """

    def spatial_dims(self) -> int | None:
        return 2

    def draw(self, rng: np.random.Generator, shapes: Shapes, context: Mapping[str, Any]) -> Params:
        return {count: shapes[count] for count in _COUNTS.values() if count in shapes}

    @takes(**{count: needed_if(lambda _: False, integer(1)) for count in _COUNTS.values()})
    def change(self, workspace: Workspace, params: Params) -> None:
        for key, count in _COUNTS.items():
            if key in workspace:
                _reshape(workspace, key, _volume_shape(key, workspace[key].shape, params.get(count)))
            if workspace.get(count) is not None:
                workspace.remove(count)
        for key, (kept, columns) in _ALONG_FIRST_AXIS.items():
            if key not in workspace:
                continue
            rows, first = workspace[key], workspace.get(kept)
            if first is None or len(first) != len(rows):
                raise ValueError(
                    f"{key} has {len(rows)} rows in the plane and {0 if first is None else len(first)} coordinates "
                    f"along the first axis: Convert3DTo2D must come before, and no row may be lost in between"
                )
            checked_points(key, rows, 2)
            whole = np.concatenate(
                [part for c in range(columns) for part in (first[:, c : c + 1], rows[:, 2 * c : 2 * c + 2])], axis=1
            )
            workspace.put(key, whole.astype(rows.dtype if rows.dtype.kind == "f" else first.dtype, copy=False))
            workspace.remove(kept)

    def output_shapes(self, shapes: Shapes, params: Params) -> dict[str, Any]:
        left = {*_COUNTS.values(), *(kept for kept, _ in _ALONG_FIRST_AXIS.values())}
        result = {key: shape for key, shape in shapes.items() if key not in left}
        for key, count in _COUNTS.items():
            if shapes.get(key) is not None:
                result[key] = _volume_shape(key, shapes[key], params.get(count))
        for key, (_, columns) in _ALONG_FIRST_AXIS.items():
            if shapes.get(key) is not None:
                result[key] = (shapes[key][0], 3 * columns)
        return result

    def undo(self, params: Params, shapes: Shapes | None) -> list[Step]:
        return [Step(Convert3DTo2D(), None)]


def _check_volume(key: str, shape: tuple[int, ...]) -> None:
    if len(shape) != 4:
        raise ValueError(f"Convert3DTo2D makes planes of volumes: {key} must be (C, X, Y, Z), got {tuple(shape)}")


def _volume_shape(key: str, shape: tuple[int, ...], count: int | None) -> tuple[int, ...]:
    if count is None or len(shape) != 3 or shape[0] % count:
        raise ValueError(
            f"Convert2DTo3D cannot make volumes of {key} of shape {tuple(shape)}: Convert3DTo2D must come before (it "
            f"leaves the number of channels in {_COUNTS[key]}, here {count}), and the channels must stay as many"
        )
    return (count, shape[0] // count, *shape[1:])


def _reshape(workspace: Workspace, key: str, shape: tuple[int, ...]) -> None:
    array = workspace[key]
    reshaped = array.reshape(shape)
    workspace.put(key, reshaped, owned=workspace.owns(key) or not np.may_share_memory(reshaped, array))
