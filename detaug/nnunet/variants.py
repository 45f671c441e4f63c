"""The pipelines of nnU-Net's trainer variants.

They are those of ``nnunetv2/training/nnUNetTrainer/variants/data_augmentation``. All take
the arguments of `training_transforms`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.random import Generator

from detaug.kernels.scalars import exponential, natural_log
from detaug.kernels.statistics import moments
from detaug.nnunet.transforms import (
    Arguments,
    default_pipeline,
    either_spelling,
    for_the_loss,
    low_resolution,
    mirroring,
    spatial_transforms,
    training_transforms,
    validation_transforms,
)
from detaug.transforms import (
    BGContrast,
    BlankRectangle,
    BrightnessAdditive,
    BrightnessGradientAdditive,
    Compose,
    Contrast,
    Gamma,
    GaussianBlur,
    GaussianNoise,
    LocalGamma,
    MedianFilter,
    OneOf,
    RandomApply,
    Rot90,
    Sharpening,
    Transform,
    TransposeAxes,
)
from detaug.transforms.building import draws
from detaug.transforms.building.checks import radians, random_scalar


def as_builder(build: Callable[[Arguments], Compose]) -> Callable[..., Compose]:
    """Return a builder that takes its arguments one by one, from one that takes `Arguments`."""

    @functools.wraps(build)
    def builder(*positional: Any, **named: Any) -> Compose:
        return build(Arguments(*positional, **named))

    builder.__signature__ = inspect.signature(training_transforms)  # type: ignore[attr-defined]
    return either_spelling(builder)


@as_builder
def seg_ord0_transforms(arguments: Arguments) -> Compose:
    """Return the pipeline of ``nnUNetTrainer_DASegOrd0``: labels are the nearest voxel's.

    In a cascade every label is changed where the default changes each with probability 1/2.
    """
    return default_pipeline(arguments, p_per_label=1, mode_seg="nearest")


def _da5(mode_image: str, mode_seg: str) -> Callable[..., Compose]:
    """Return the builder of ``nnUNetTrainerDA5`` or one of its variants.

    They have more kinds of augmentation, and stronger ones, and resample in one way or another.
    """

    @as_builder
    def da5_transforms(arguments: Arguments) -> Compose:
        size = [int(n) for n in arguments.patch_size]
        spatial = spatial_transforms(
            arguments,
            p_rotation=0.4,
            p_rot_per_axis=0.5,
            p_scaling=0.2,
            scaling=(0.7, 1.43),
            p_synchronize_scaling_across_axes=0,
            mode_image=mode_image,
            mode_seg=mode_seg,
        )
        return Compose(
            [
                *spatial,
                *_axes_of_one_length_exchanged(size),
                *_da5_intensity_transforms(arguments.do_dummy_2d),
                *mirroring(arguments.mirror_axes),
                *_da5_local_transforms(size),
                *for_the_loss(arguments, p_per_label=1),
            ]
        )

    return da5_transforms


da5_transforms = _da5("bilinear", "bilinear")


@as_builder
def no_da_transforms(arguments: Arguments) -> Compose:
    """Return the pipeline of ``nnUNetTrainerNoDA``: that of validation, in training too."""
    # Nothing rotates here, but what the other pipelines refuse is an error all the same.
    radians("rotation", random_scalar("rotation", arguments.rotation))
    labels = validation_transforms(
        arguments.ds_scales,
        arguments.is_cascaded,
        arguments.foreground_labels,
        arguments.regions,
        arguments.ignore_label,
    )
    return Compose(labels.transforms, dim=len(arguments.patch_size))


#: Name of a trainer of nnU-Net with a pipeline of its own -> the builder of that pipeline. All take
#: the arguments of `training_transforms`. Trainers that are not here inherit one of these
#: pipelines; what they decide on (the axes that are mirrored) is in the arguments.
TRAINING_TRANSFORMS: dict[str, Callable[..., Compose]] = {
    "nnUNetTrainer": training_transforms,
    "nnUNetTrainerDA5": da5_transforms,
    "nnUNetTrainerDA5ord0": _da5("nearest", "nearest"),
    "nnUNetTrainerDA5Segord0": _da5("bilinear", "nearest"),
    "nnUNetTrainerNoDA": no_da_transforms,
    "nnUNetTrainer_DASegOrd0": seg_ord0_transforms,
    "nnUNetTrainer_onlyMirror01_DASegOrd0": seg_ord0_transforms,
}


def _axes_of_one_length_exchanged(size: Sequence[int]) -> list[Transform]:
    """Return quarter turns and transpositions among axes of one length: the most that have one."""
    # Other axes cannot be exchanged: the patch must keep its shape.
    counts = [size.count(length) for length in size]
    if max(counts) == 1:
        return []
    axes = {axis for axis, count in enumerate(counts) if count == max(counts)}
    turns = Rot90(num_axis_combinations=1, num_rot_per_combination=(0, 1, 2, 3), allowed_axes=axes)
    return [RandomApply(turns, 0.5), RandomApply(TransposeAxes(allowed_axes=axes), 0.5)]


def _da5_intensity_transforms(do_dummy_2d: bool) -> list[Transform]:
    """Return the intensity transforms of ``nnUNetTrainerDA5``, each with its probability."""
    median = MedianFilter((2, 8), p_same_for_each_channel=0, p_per_channel=0.5)
    blur = GaussianBlur(
        (0.3, 1.5), synchronize_channels=False, synchronize_axes=True, p_per_channel=0.5
    )
    noise = GaussianNoise(noise_variance=(0, 0.1), p_per_channel=1, synchronize_channels=True)
    brightness = BrightnessAdditive(mu=0, sigma=0.5, synchronize_channels=False, p_per_channel=0.5)
    contrast: dict[str, Any] = {
        "contrast_range": BGContrast((0.5, 2)),
        "synchronize_channels": False,
        "p_per_channel": 0.5,
    }
    within_range = Contrast(preserve_range=True, **contrast)
    beyond_range = Contrast(preserve_range=False, **contrast)
    gamma = Gamma(
        gamma=BGContrast((0.7, 1.5)),
        p_invert_image=1,
        synchronize_channels=False,
        p_per_channel=1,
        p_retain_stats=1,
    )
    return [
        OneOf([RandomApply(median, 0.2), RandomApply(blur, 0.2)]),
        RandomApply(noise, 0.1),
        RandomApply(brightness, 0.1),
        OneOf([RandomApply(within_range, 0.2), RandomApply(beyond_range, 0.2)]),
        RandomApply(low_resolution((0.25, 1), do_dummy_2d), 0.15),
        # Twice the same one: nnU-Net's second has p_invert_image=1 as well.
        RandomApply(gamma, 0.1),
        RandomApply(gamma, 0.1),
    ]


def _da5_local_transforms(size: Sequence[int]) -> list[Transform]:
    """Return the local transforms of ``nnUNetTrainerDA5``, each with its probability."""
    rectangles = BlankRectangle(
        rectangle_size=[[max(1, length // 10), length // 3] for length in size],
        rectangle_value=mean_of,
        num_rectangles=(1, 5),
        force_square=False,
        p_per_channel=0.5,
    )
    gradient: dict[str, Any] = {
        "scale": gradient_scale,
        "loc": (-0.5, 1.5),
        "same_for_all_channels": False,
        "p_per_channel": 0.5,
    }
    brightness = BrightnessGradientAdditive(
        max_strength=gradient_strength, mean_centered=False, **gradient
    )
    sharpening = Sharpening(strength=(0.1, 1), p_same_for_each_channel=0, p_per_channel=0.5)
    return [
        RandomApply(rectangles, 0.4),
        RandomApply(brightness, 0.3),
        RandomApply(LocalGamma(gamma=local_gamma, **gradient), 0.3),
        RandomApply(sharpening, 0.2),
    ]


def mean_of(region: np.ndarray) -> float:
    """Return the mean intensity of a rectangle.

    It is nnU-Net's ``torch.mean``, summed in an order that no CPU changes.
    """
    _, _, mean, _ = moments(np.ascontiguousarray(region, np.float32).reshape(-1))
    return float(mean)


def gradient_scale(rng: Generator, shape: Sequence[int], dim: int) -> float:
    """Draw a scale in voxels, evenly on a logarithmic scale.

    It is from a sixth of the axis (at least one voxel) to all of it.
    """
    length = shape[dim]
    low = natural_log(max(1, length // 6))
    high = natural_log(length)
    return exponential(draws.uniform(rng, low, high))


def gradient_strength(rng: Generator) -> float:
    """Draw a strength from 1 to 5, brighter or darker."""
    if draws.happens(rng, 0.5):
        return draws.uniform(rng, -5, -1)
    return draws.uniform(rng, 1, 5)


def local_gamma(rng: Generator) -> float:
    """Draw an exponent clearly below 1, or clearly above."""
    if draws.happens(rng, 0.5):
        return draws.uniform(rng, 0.01, 0.8)
    return draws.uniform(rng, 1.5, 4)
