"""The rows of single transforms that have a target of their own; MONAI and TorchIO where they have the transform."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from benchmarks.report import Row
from benchmarks.transforms import inputs, peers, plain_torch
from benchmarks.transforms.timing import Prepare, Settings, alternating, one_thread, row_of

BGV2 = "batchgeneratorsv2"
ROTATION = (-math.radians(30), math.radians(30))  # nnU-Net's for 3-D
Systems = dict[str, Prepare]


def _measure(
    name: str, systems: Callable[[], Systems], bound: float | None, settings: Settings
) -> Row:
    one_thread()
    return row_of(name, alternating(systems(), settings), {BGV2: bound}, {})


def _measure_single(
    name: str, systems: Callable[[peers.Arrays], Systems], torch: plain_torch.Transform, bound: float,
    settings: Settings, space: tuple[int, ...],
) -> Row:  # fmt: skip
    """A transform of one image; the target is for `inputs.PATCH`."""

    def with_torch() -> Systems:
        arrays = inputs.image(space)
        return {**systems(arrays), "torch": peers.plain(torch, arrays)}

    return _measure(
        inputs.sized(name, space), with_torch, bound if space == inputs.PATCH else None, settings
    )


def _contest(
    arrays: peers.Arrays,
    ours: Any,
    bgv2: Any,
    monai: Callable[[Any], Any] | None = None,
    torchio: Callable[[Any], Any] | None = None,
    torchio_arrays: peers.Arrays | None = None,
) -> Systems:
    systems = {"detaug": peers.detaug(ours, arrays), BGV2: peers.batchgeneratorsv2(bgv2, arrays)}
    if monai is not None and (library := peers.optional("monai.transforms")) is not None:
        systems["MONAI"] = peers.monai(monai(library), arrays)
    if torchio is not None and (library := peers.optional("torchio")) is not None:
        systems["TorchIO"] = peers.torchio(torchio(library), torchio_arrays or arrays)
    return systems


def _image_and_labels(two: bool = False) -> peers.Arrays:
    image, labels = inputs.volume(inputs.ENLARGED)
    return {"image": image, "segmentation": labels.clamp(0, 1) if two else labels}


def _spatial(two_labels: bool) -> Systems:
    from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform as Theirs

    from detaug.transforms import SpatialTransform

    options: dict[str, Any] = {
        "patch_center_dist_from_border": 0,
        "random_crop": False,
        "p_rotation": 1,
        "rotation": ROTATION,
        "p_scaling": 1,
        "scaling": (0.7, 1.4),
        "p_synchronize_scaling_across_axes": 1,
        "bg_style_seg_sampling": False,
        "border_mode_seg": "constant",
        "padding_value_seg": 0 if two_labels else -1,
    }
    return _contest(
        _image_and_labels(two_labels),
        SpatialTransform(inputs.PATCH, **options),
        Theirs(inputs.PATCH, **options),
        lambda m: m.Compose(
            [
                m.RandAffined(
                    ("image", "segmentation"),
                    prob=1,
                    spatial_size=inputs.PATCH,
                    rotate_range=[ROTATION[1]] * 3,
                    scale_range=[(-0.3, 0.4)] * 3,
                    mode=("bilinear", "nearest"),
                    padding_mode="zeros",
                )
            ]
        ),
    )


def measure_spatial_two_labels(settings: Settings) -> Row:
    """Rotation and scaling of an image with labels 0 and 1."""
    return _measure("spatial, rotated and scaled, 2 labels", lambda: _spatial(True), 5.0, settings)


def measure_spatial_four_labels(settings: Settings) -> Row:
    """Rotation and scaling of an image with labels -1, 0, 1 and 2."""
    return _measure("spatial, rotated and scaled, 4 labels", lambda: _spatial(False), 8.0, settings)


def measure_elastic(settings: Settings) -> Row:
    """Elastic deformation of an image with labels -1, 0, 1 and 2."""

    def systems() -> Systems:
        from batchgeneratorsv2.transforms.spatial.spatial import SpatialTransform as Theirs

        from detaug.transforms import SpatialTransform

        options: dict[str, Any] = {
            "patch_center_dist_from_border": 0,
            "random_crop": False,
            "p_elastic_deform": 1,
            "border_mode_seg": "constant",
            "padding_value_seg": -1,
        }
        image, labels = inputs.volume(inputs.PATCH)
        return _contest(
            _image_and_labels(),
            SpatialTransform(inputs.PATCH, **options),
            Theirs(inputs.PATCH, **options),
            lambda m: m.Rand3DElasticd(
                ("image", "segmentation"),
                sigma_range=(5, 8),
                magnitude_range=(50, 150),
                prob=1,
                spatial_size=inputs.PATCH,
                mode=("bilinear", "nearest"),
                padding_mode="zeros",
            ),
            lambda t: t.RandomElasticDeformation(
                num_control_points=7, max_displacement=7.5, locked_borders=2
            ),
            {"image": image, "segmentation": labels},
        )

    return _measure("elastic deformation, 3-D", systems, 4.0, settings)


def measure_noise(settings: Settings, space: tuple[int, ...] = inputs.PATCH) -> Row:
    """Gaussian noise."""

    def systems(arrays: peers.Arrays) -> Systems:
        from batchgeneratorsv2.transforms.intensity.gaussian_noise import GaussianNoiseTransform

        from detaug.transforms import GaussianNoise

        return _contest(
            arrays,
            GaussianNoise(0.1, 1, True),
            GaussianNoiseTransform(0.1, 1, True),
            lambda m: m.RandGaussianNoise(prob=1, mean=0.0, std=0.1, sample_std=False),
            lambda t: t.RandomNoise(mean=0, std=(0.1, 0.1)),
        )

    return _measure_single("Gaussian noise", systems, plain_torch.noise, 4.0, settings, space)


def measure_gamma(settings: Settings, space: tuple[int, ...] = inputs.PATCH) -> Row:
    """Gamma that keeps mean and standard deviation."""

    def systems(arrays: peers.Arrays) -> Systems:
        from batchgeneratorsv2.transforms.intensity.contrast import BGContrast as TheirContrast
        from batchgeneratorsv2.transforms.intensity.gamma import GammaTransform

        from detaug.transforms import BGContrast, Gamma

        return _contest(
            arrays,
            Gamma(BGContrast((0.7, 1.5)), 0, False, 1, 1),
            GammaTransform(TheirContrast((0.7, 1.5)), 0, False, 1, 1),
            lambda m: m.RandAdjustContrast(prob=1, gamma=(0.7, 1.5), retain_stats=True),
            lambda t: t.RandomGamma(log_gamma=(-0.3, 0.3)),
        )

    return _measure_single(
        "gamma, statistics retained", systems, plain_torch.gamma, 3.0, settings, space
    )


def measure_blur(settings: Settings, space: tuple[int, ...] = inputs.PATCH) -> Row:
    """Gaussian blur, σ 0.5 to 1 voxels."""

    def systems(arrays: peers.Arrays) -> Systems:
        from batchgeneratorsv2.transforms.noise.gaussian_blur import GaussianBlurTransform

        from detaug.transforms import GaussianBlur

        options: dict[str, Any] = {
            "blur_sigma": (0.5, 1.0),
            "synchronize_channels": False,
            "synchronize_axes": False,
            "p_per_channel": 1,
            "benchmark": True,
        }
        return _contest(
            arrays,
            GaussianBlur(**options),
            GaussianBlurTransform(**options),
            lambda m: m.RandGaussianSmooth(
                sigma_x=(0.5, 1), sigma_y=(0.5, 1), sigma_z=(0.5, 1), prob=1
            ),
            lambda t: t.RandomBlur(std=(0.5, 1)),
        )

    return _measure_single(
        "Gaussian blur, σ 0.5 to 1", systems, plain_torch.blur, 4.0, settings, space
    )


def measure_low_resolution(settings: Settings, space: tuple[int, ...] = inputs.PATCH) -> Row:
    """Simulated low resolution, factors 0.5 to 1."""

    def systems(arrays: peers.Arrays) -> Systems:
        from batchgeneratorsv2.transforms.spatial.low_resolution import (
            SimulateLowResolutionTransform,
        )

        from detaug.transforms import SimulateLowResolution

        options: dict[str, Any] = {
            "scale": (0.5, 1),
            "synchronize_channels": False,
            "synchronize_axes": True,
            "ignore_axes": None,
        }
        return _contest(
            arrays,
            SimulateLowResolution(**options),
            SimulateLowResolutionTransform(**options),
            lambda m: m.RandSimulateLowResolution(prob=1, zoom_range=(0.5, 1.0)),
        )

    return _measure_single(
        "simulated low resolution", systems, plain_torch.low_resolution, 2.0, settings, space
    )
