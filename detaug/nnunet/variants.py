"""The pipelines of nnU-Net's trainer variants
(``nnunetv2/training/nnUNetTrainer/variants/data_augmentation``), and a stronger one for MRI.

All take the arguments of `training_transforms`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections import UserDict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from detaug.kernels.scalars import exponential, natural_log
from detaug.kernels.statistics import moments
from detaug.nnunet.compatibility import find_trainer
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
    Anisotropy,
    BGContrast,
    BiasField,
    BlankRectangle,
    BrightnessAdditive,
    BrightnessGradientAdditive,
    CoarseDropout,
    Compose,
    Contrast,
    Gamma,
    GaussianBlur,
    GaussianNoise,
    Ghosting,
    GibbsNoise,
    HistogramShift,
    LocalGamma,
    MedianFilter,
    Motion,
    OneOf,
    RandomApply,
    Rot90,
    Sharpening,
    Spikes,
    Transform,
    TransposeAxes,
)
from detaug.transforms.building import draws
from detaug.transforms.building.checks import radians, random_scalar


def as_builder(build: Callable[[Arguments], Compose]) -> Callable[..., Compose]:
    """A builder that takes the arguments of `training_transforms`, from one that takes them as
    `Arguments`.
    """

    @functools.wraps(build)
    def builder(*positional: Any, **named: Any) -> Compose:
        return build(Arguments(*positional, **named))

    builder.__signature__ = inspect.signature(training_transforms)  # type: ignore[attr-defined]
    return either_spelling(builder)


@as_builder
def seg_ord0_transforms(given: Arguments) -> Compose:
    """``nnUNetTrainer_DASegOrd0``: labels are resampled to the nearest voxel's.

    In a cascade every label is changed where the default changes each with probability 1/2.
    """
    return default_pipeline(given, p_per_label=1, mode_seg="nearest")


def _da5(mode_image: str, mode_seg: str) -> Callable[..., Compose]:
    """``nnUNetTrainerDA5`` and its variants: more kinds of augmentation, and stronger ones;
    resampled in one way or another.
    """

    @as_builder
    def da5_transforms(given: Arguments) -> Compose:
        size = [int(n) for n in given.patch_size]
        spatial: dict[str, Any] = {
            "p_rotation": 0.4,
            "p_rot_per_axis": 0.5,
            "p_scaling": 0.2,
            "scaling": (0.7, 1.43),
            "p_synchronize_scaling_across_axes": 0,
        }
        return Compose(
            [
                *spatial_transforms(given, **spatial, mode_image=mode_image, mode_seg=mode_seg),
                *_axes_of_one_length_exchanged(size),
                *_da5_intensity_transforms(given.do_dummy_2d),
                *mirroring(given.mirror_axes),
                *_da5_local_transforms(size),
                *for_the_loss(given, p_per_label=1),
            ]
        )

    return da5_transforms


da5_transforms = _da5("bilinear", "bilinear")


@as_builder
def no_da_transforms(given: Arguments) -> Compose:
    """``nnUNetTrainerNoDA``: what validation does, in training too."""
    radians("rotation", random_scalar("rotation", given.rotation))
    labels = validation_transforms(
        given.ds_scales,
        given.is_cascaded,
        given.foreground_labels,
        given.regions,
        given.ignore_label,
    )
    return Compose(labels.transforms, dim=len(given.patch_size))


def changing(
    build: Callable[..., Compose], change: Callable[[Arguments], dict[str, Any]]
) -> Callable[..., Compose]:
    """A builder's pipeline with some arguments as a trainer has them, whatever is given."""
    return as_builder(functools.wraps(build)(lambda given: build(*given._replace(**change(given)))))


#: Where nnU-Net's trainers decide on arguments.
_DECIDES = "configure_rotation_dummyDA_mirroring_and_inital_patch_size"
#: How the names of those end that do -> on which.
_DECIDED: dict[str, Callable[[Arguments], dict[str, Any]]] = {
    "NoMirroring": lambda _: {"mirror_axes": None},
    # in 2-D along the first axis
    "_onlyMirror01": lambda given: {"mirror_axes": tuple(range(len(given.patch_size) - 1))},
    "_noDummy2DDA": lambda _: {"do_dummy_2d": False},
}


class _Builders(UserDict[str, Callable[..., Compose]]):
    """Trainers that augment in a way of their own; the others of the installed nnU-Net are resolved
    by what they inherit.
    """

    def __missing__(self, name: str) -> Callable[..., Compose]:
        try:
            bases = getattr(find_trainer(str(name)), "__mro__", ())
            build = self.data[
                next(
                    (each.__name__ for each in bases if "get_training_transforms" in vars(each)), ""
                )
            ]
        except (ImportError, KeyError):
            known = f"without it there are {', '.join(sorted(self.data))}"
            raise KeyError(f"nnU-Net has no trainer {name}, or is not installed; {known}") from None
        decides = next(each.__name__ for each in bases if _DECIDES in vars(each))
        change = next((_DECIDED[ending] for ending in _DECIDED if decides.endswith(ending)), None)
        return build if change is None else changing(build, change)

    def __contains__(self, name: object) -> bool:
        try:
            return bool(self[name])  # type: ignore[index]
        except KeyError:
            return False


#: The trainer's name -> what builds its pipeline; all take the arguments of `training_transforms`.
#: Other trainers of nnU-Net (``nnUNetTrainer_250epochs``, ``nnUNetTrainerDiceLoss`` ...) are found
#: by name where nnU-Net is installed.
TRAINING_TRANSFORMS = _Builders(
    {
        "nnUNetTrainer": training_transforms,
        "nnUNetTrainerDA5": da5_transforms,
        "nnUNetTrainerDA5ord0": _da5("nearest", "nearest"),
        "nnUNetTrainerDA5Segord0": _da5("bilinear", "nearest"),
        "nnUNetTrainerNoDA": no_da_transforms,
        "nnUNetTrainer_DASegOrd0": seg_ord0_transforms,
        "nnUNetTrainer_onlyMirror01_DASegOrd0": changing(
            seg_ord0_transforms, _DECIDED["_onlyMirror01"]
        ),
    }
)


def _axes_of_one_length_exchanged(size: Sequence[int]) -> list[Transform]:
    """Quarter turns and transpositions among the axes that may be exchanged: the most that have one
    length.
    """
    equal = [sum(other == length for other in size) for length in size]
    if max(equal) == 1:
        return []
    axes = {axis for axis, count in enumerate(equal) if count == max(equal)}
    turns = Rot90(num_axis_combinations=1, num_rot_per_combination=(0, 1, 2, 3), allowed_axes=axes)
    return [RandomApply(turns, 0.5), RandomApply(TransposeAxes(allowed_axes=axes), 0.5)]


def _da5_intensity_transforms(do_dummy_2d: bool) -> list[Transform]:
    contrast: dict[str, Any] = {
        "contrast_range": BGContrast((0.5, 2)),
        "synchronize_channels": False,
        "p_per_channel": 0.5,
    }
    gamma = Gamma(
        gamma=BGContrast((0.7, 1.5)),
        p_invert_image=1,
        synchronize_channels=False,
        p_per_channel=1,
        p_retain_stats=1,
    )
    median = MedianFilter((2, 8), p_same_for_each_channel=0, p_per_channel=0.5)
    blur = GaussianBlur(
        (0.3, 1.5), synchronize_channels=False, synchronize_axes=True, p_per_channel=0.5
    )
    brightness = BrightnessAdditive(mu=0, sigma=0.5, synchronize_channels=False, p_per_channel=0.5)
    return [
        OneOf([RandomApply(median, 0.2), RandomApply(blur, 0.2)]),
        RandomApply(
            GaussianNoise(noise_variance=(0, 0.1), p_per_channel=1, synchronize_channels=True), 0.1
        ),
        RandomApply(brightness, 0.1),
        OneOf(
            [RandomApply(Contrast(preserve_range=kept, **contrast), 0.2) for kept in (True, False)]
        ),
        RandomApply(low_resolution((0.25, 1), do_dummy_2d), 0.15),
        # twice the same one: nnU-Net's second has p_invert_image=1 as well
        RandomApply(gamma, 0.1),
        RandomApply(gamma, 0.1),
    ]


def _da5_local_transforms(size: Sequence[int]) -> list[Transform]:
    rectangles = BlankRectangle(
        rectangle_size=[[max(1, length // 10), length // 3] for length in size],
        rectangle_value=mean_of,
        num_rectangles=(1, 5),
        force_square=False,
        p_per_channel=0.5,
    )
    place: dict[str, Any] = {
        "scale": gradient_scale,
        "loc": (-0.5, 1.5),
        "same_for_all_channels": False,
        "p_per_channel": 0.5,
    }
    return [
        RandomApply(rectangles, 0.4),
        RandomApply(
            BrightnessGradientAdditive(
                max_strength=gradient_strength, mean_centered=False, **place
            ),
            0.3,
        ),
        RandomApply(LocalGamma(gamma=local_gamma, **place), 0.3),
        RandomApply(
            Sharpening(strength=(0.1, 1), p_same_for_each_channel=0, p_per_channel=0.5), 0.2
        ),
    ]


def mean_of(region: np.ndarray) -> float:
    """The mean intensity of a rectangle: nnU-Net's ``torch.mean``, summed in an order that no CPU
    changes.
    """
    _, _, mean, _ = moments(np.ascontiguousarray(region, np.float32).reshape(-1))
    return float(mean)


def gradient_scale(rng: np.random.Generator, shape: Sequence[int], dim: int) -> float:
    """Voxels: evenly on a logarithmic scale from a sixth of the axis (at least one voxel) to all of
    it.
    """
    length = shape[dim]
    low, high = natural_log(max(1, length // 6)), natural_log(length)
    return exponential(draws.uniform(rng, low, high))


def gradient_strength(rng: np.random.Generator) -> float:
    """From 1 to 5, brighter or darker."""
    return draws.uniform(rng, -5, -1) if draws.happens(rng, 0.5) else draws.uniform(rng, 1, 5)


def local_gamma(rng: np.random.Generator) -> float:
    """Clearly below 1 or clearly above."""
    return draws.uniform(rng, 0.01, 0.8) if draws.happens(rng, 0.5) else draws.uniform(rng, 1.5, 4)


@as_builder
def extended_transforms(given: Arguments) -> Compose:
    """``nnUNetTrainerDetAugExt``: nnU-Net's default pipeline, between whose spatial part and
    intensities come a bias field (probability 0.2), thick slices (0.1), one artefact of k-space
    (0.2: motion, ghosting, spikes or ringing, each as likely), and after which come a shifted
    histogram (0.1) and coarse dropout (0.1).

    Probabilities and ranges are ours; they are weaker than the originals' defaults where these make
    images that no scanner would pass. Arguments as for `training_transforms`.
    """
    size = [int(n) for n in given.patch_size]
    smallest, largest = [max(1, n // 16) for n in size], [max(2, n // 5) for n in size]
    later = [
        RandomApply(HistogramShift((5, 10), synchronize_channels=False), 0.1),
        RandomApply(CoarseDropout(1, smallest, max_holes=6, max_spatial_size=largest), 0.1),
    ]
    return default_pipeline(given, 0.5, earlier=_scanner_artefacts(given.do_dummy_2d), later=later)


def _scanner_artefacts(do_dummy_2d: bool) -> list[Transform]:
    # a volume that is deformed in its planes alone has thick slices along the first axis already
    axes = range(1, 3) if do_dummy_2d else None
    k_space = OneOf(
        [
            Motion(rotation=(-math.radians(5), math.radians(5)), translation=(-5, 5)),
            Ghosting(num_ghosts=(4, 10), intensity=(0.1, 0.6)),
            Spikes(num_spikes=(1, 2), intensity=(0.1, 0.6)),
            GibbsNoise((0.2, 0.7)),
        ]
    )
    return [
        RandomApply(BiasField((-0.4, 0.4), synchronize_channels=False), 0.2),
        RandomApply(Anisotropy(axes, downsampling=(1.5, 4), profile="box"), 0.1),
        RandomApply(k_space, 0.2),
    ]
