"""The rows of the spatial transform's other modes: nearest voxel, cubic, and elastic deformation with narrow filters."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchmarks.report import Row
from benchmarks.transforms import inputs, peers
from benchmarks.transforms.timing import Prepare, Settings, alternating, one_thread, row_of

BGV2, LINEAR = "batchgeneratorsv2", "detaug, linear"

_CROP: dict[str, Any] = {
    "patch_center_dist_from_border": 0,
    "random_crop": False,
    "border_mode_seg": "constant",
    "padding_value_seg": -1,
}


def _turned(angle: float, **modes: str) -> dict[str, Any]:
    scaled = {"p_scaling": 1, "scaling": (0.7, 1.4), "p_synchronize_scaling_across_axes": 1}
    return {**_CROP, "p_rotation": 1, "rotation": (-angle, angle), **scaled, **modes}


_LITTLE, _MUCH = math.radians(30), math.radians(180)
_NEAREST = {"mode_image": "nearest", "mode_seg": "nearest"}


def _plane() -> peers.Arrays:
    return {"image": inputs.slice_of_volume(inputs.FLAT_ENLARGED)[0]}


def _volume() -> peers.Arrays:
    return {"image": inputs.volume(inputs.ENLARGED)[0]}


def _volume_and_labels() -> peers.Arrays:
    image, labels = inputs.volume(inputs.ENLARGED)
    return {"image": image, "segmentation": labels}


def _against(
    name: str,
    arrays: Callable[[], peers.Arrays],
    options: dict[str, Any],
    bounds: dict[str, float | None],
) -> Callable[[Settings], Row]:
    """The row of a mode against batchgeneratorsv2, or against detaug's own linear mode."""

    def measured(settings: Settings) -> Row:
        from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform as Theirs

        from detaug.transforms import SpatialTransform

        one_thread()
        given = arrays()
        patch = inputs.FLAT_PATCH if next(iter(given.values())).ndim == 3 else inputs.PATCH
        linear = {key: value for key, value in options.items() if not key.startswith("mode_")}
        makers: dict[str, Callable[[], Prepare]] = {
            BGV2: lambda: peers.batchgeneratorsv2(Theirs(patch, **options), given),
            LINEAR: lambda: peers.detaug(SpatialTransform(patch, **linear), given),
        }
        systems = {"detaug": peers.detaug(SpatialTransform(patch, **options), given)}
        systems |= {system: makers[system]() for system in bounds}
        return row_of(name, alternating(systems, settings), bounds, {"patch": list(patch)})

    return measured


def measure_shear_and_translation(settings: Settings) -> Row:
    """An image with labels -1, 0, 1 and 2, rotated, sheared and shifted, against MONAI's `RandAffine`."""
    from detaug.transforms import SpatialTransform

    one_thread()
    arrays = _volume_and_labels()
    sheared = {"p_shear": 1, "shear": (-0.1, 0.1), "p_translation": 1, "translation": (-10, 10)}
    options = {**_turned(_LITTLE, mode_seg="nearest"), **sheared}
    systems = {"detaug": peers.detaug(SpatialTransform(inputs.PATCH, **options), arrays)}
    if (monai := peers.optional("monai.transforms")) is not None:
        theirs = monai.RandAffined(
            ("image", "segmentation"),
            prob=1,
            spatial_size=inputs.PATCH,
            rotate_range=[_LITTLE] * 3,
            shear_range=[0.1] * 6,
            translate_range=[10] * 3,
            mode=("bilinear", "nearest"),
            padding_mode="zeros",
        )
        systems["MONAI"] = peers.monai(monai.Compose([theirs]), arrays)
    return row_of("shear and translation, 3-D", alternating(systems, settings), {"MONAI": 5.0}, {})


ROWS: dict[str, Callable[[Settings], Row]] = {
    "nearest-2d": _against(
        "nearest voxel, 2-D image", _plane, _turned(_MUCH, **_NEAREST), {BGV2: 4.0}
    ),
    "nearest-3d": _against(
        "nearest voxel, 3-D image", _volume, _turned(_LITTLE, **_NEAREST), {BGV2: 8.0}
    ),
    "nearest-3d-labels": _against(
        "nearest voxel, 3-D image and labels",
        _volume_and_labels,
        _turned(_LITTLE, **_NEAREST),
        {BGV2: None, LINEAR: 1.0},
    ),
    "bicubic-2d": _against(
        "bicubic, 2-D image", _plane, _turned(_MUCH, mode_image="bicubic"), {BGV2: 2.0}
    ),
    "shear-translation": measure_shear_and_translation,
    "elastic-narrow": _against(
        "elastic deformation, 3-D, filters under 2 voxels",
        _volume_and_labels,
        {**_CROP, "p_elastic_deform": 1, "elastic_deform_scale": (0, 2 / inputs.PATCH[0])},
        {BGV2: 4.0},
    ),
}
