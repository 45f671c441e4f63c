"""nnU-Net's default pipelines, as ``nnUNetTrainer`` of nnunetv2 2.8 builds them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from detaug.transforms import (
    ApplyRandomBinaryOperator,
    BGContrast,
    Compose,
    Contrast,
    Convert2DTo3D,
    Convert3DTo2D,
    ConvertSegmentationToRegions,
    DownsampleSegForDS,
    Gamma,
    GaussianBlur,
    GaussianNoise,
    MaskImage,
    Mirror,
    MoveSegAsOneHotToData,
    MultiplicativeBrightness,
    RandomApply,
    RemoveLabel,
    RemoveRandomConnectedComponentFromOneHotEncoding,
    SimulateLowResolution,
    SpatialTransform,
    Transform,
)
from detaug.transforms.building.calls import Keys
from detaug.transforms.building.draws import RandomScalar

Labels = Sequence[int]
Region = int | Sequence[int]
Scales = Sequence[float | Sequence[float]]


class Arguments(NamedTuple):
    """The arguments of `training_transforms` and of the builders of all variants."""

    patch_size: Sequence[int]
    rotation: RandomScalar
    ds_scales: Scales | None
    mirror_axes: Sequence[int] | None
    do_dummy_2d: bool
    use_mask_for_norm: Sequence[bool] | None = None
    is_cascaded: bool = False
    foreground_labels: Labels | None = None
    regions: Sequence[Region] | None = None
    ignore_label: int | None = None


#: nnU-Net's keyword -> the argument's name here.
NNUNET_NAMES = {
    "rotation_for_DA": "rotation",
    "deep_supervision_scales": "ds_scales",
    "do_dummy_2d_data_aug": "do_dummy_2d",
}


def either_spelling(build: Callable[..., Compose]) -> Callable[..., Compose]:
    """Let a builder take its keywords under nnU-Net's names as well.

    It also takes ``keys=`` as `detaug.transforms.Compose` does.
    """

    @functools.wraps(build)
    def builder(*positional: Any, keys: Keys | None = None, **named: Any) -> Compose:
        for nnunet_name, name in NNUNET_NAMES.items():
            if nnunet_name not in named:
                continue
            if name in named:
                raise TypeError(f"{name} and {nnunet_name} are one argument: pass it once")
            named[name] = named.pop(nnunet_name)
        pipeline = build(*positional, **named)
        if keys is None:
            return pipeline
        return Compose(pipeline.transforms, keys=keys, dim=pipeline.dim)

    return builder


@either_spelling
def training_transforms(
    patch_size: Sequence[int],
    rotation: RandomScalar,
    ds_scales: Scales | None,
    mirror_axes: Sequence[int] | None,
    do_dummy_2d: bool,
    use_mask_for_norm: Sequence[bool] | None = None,
    is_cascaded: bool = False,
    foreground_labels: Labels | None = None,
    regions: Sequence[Region] | None = None,
    ignore_label: int | None = None,
) -> Compose:
    """Return the pipeline of ``nnUNetTrainer.get_training_transforms``, argument for argument.

    Args:
        patch_size: the patch's shape, (X, Y) or (X, Y, Z) voxels; what comes in is larger.
        rotation: angles in radians (nnU-Net: ``rotation_for_DA``).
        ds_scales: deep supervision's factors, one number or one number per axis for each level,
            which makes ``segmentation`` a list; None: no list (nnU-Net:
            ``deep_supervision_scales``).
        mirror_axes: spatial axes that may be mirrored; None or empty: no mirroring.
        do_dummy_2d: patches are deformed slice by slice, for anisotropic 3-D data (nnU-Net:
            ``do_dummy_2d_data_aug``).
        use_mask_for_norm: channels whose voxels outside the mask (segmentation < 0) become 0.
        is_cascaded: segmentation channel 1 is a previous stage's, which goes into the image as
            one-hot channels.
        foreground_labels: of the cascade; needed if `is_cascaded`.
        regions: lists of labels, each of which becomes a channel of its own.
        ignore_label: becomes the last region.
        keys: (by keyword only) names of the arrays, see `detaug.transforms.Compose`; every pipeline
            of nnU-Net takes it.

    Raises:
        ValueError: `is_cascaded` without `foreground_labels`, or a value that a transform refuses.
    """
    arguments = Arguments(
        patch_size,
        rotation,
        ds_scales,
        mirror_axes,
        do_dummy_2d,
        use_mask_for_norm,
        is_cascaded,
        foreground_labels,
        regions,
        ignore_label,
    )
    return default_pipeline(arguments, p_per_label=0.5)


@either_spelling
def validation_transforms(
    ds_scales: Scales | None,
    is_cascaded: bool = False,
    foreground_labels: Labels | None = None,
    regions: Sequence[Region] | None = None,
    ignore_label: int | None = None,
) -> Compose:
    """Return the pipeline of ``nnUNetTrainer.get_validation_transforms``.

    It has labels only; nothing is augmented. Arguments as for training.
    """
    moved = previous_stage(is_cascaded, foreground_labels)
    return Compose([RemoveLabel(-1, 0), *moved, *targets(regions, ignore_label, ds_scales)])


def default_pipeline(
    arguments: Arguments,
    p_per_label: float,
    **modes: Any,
) -> Compose:
    """Return nnU-Net's default pipeline.

    Args:
        arguments: as of `training_transforms`.
        p_per_label: as of `previous_stage`.
        modes: further options of the spatial transform.
    """
    scaled: dict[str, Any] = {
        "p_scaling": 0.2,
        "scaling": (0.7, 1.4),
        "p_synchronize_scaling_across_axes": 1,
    }
    return Compose(
        [
            *spatial_transforms(arguments, p_rotation=0.2, **scaled, **modes),
            *intensity_transforms(arguments.do_dummy_2d),
            *mirroring(arguments.mirror_axes),
            *for_the_loss(arguments, p_per_label),
        ]
    )


def for_the_loss(arguments: Arguments, p_per_label: float) -> list[Transform]:
    """Return the transforms after the augmentation.

    They are zeros outside masks, the previous stage of a cascade, and the loss's targets.
    """
    transforms: list[Transform] = []
    masks = arguments.use_mask_for_norm or ()
    channels = [channel for channel, is_masked in enumerate(masks) if is_masked]
    if channels:
        transforms.append(
            MaskImage(apply_to_channels=channels, channel_idx_in_seg=0, set_outside_to=0)
        )
    # -1 marks voxels outside the mask or the case; the loss does not know it.
    transforms.append(RemoveLabel(-1, 0))
    transforms += previous_stage(arguments.is_cascaded, arguments.foreground_labels, p_per_label)
    transforms += targets(arguments.regions, arguments.ignore_label, arguments.ds_scales)
    return transforms


def spatial_transforms(arguments: Arguments, **options: Any) -> list[Transform]:
    """Return the spatial transform.

    It stands between a conversion to 2-D and back if the first axis is to stay as it is.
    """
    size = tuple(int(n) for n in arguments.patch_size)
    # Between the conversions the first axis lies among the channels.
    if arguments.do_dummy_2d:
        size = size[1:]
    spatial = SpatialTransform(
        size,
        patch_center_dist_from_border=0,
        random_crop=False,
        p_elastic_deform=0,
        rotation=arguments.rotation,
        bg_style_seg_sampling=False,
        border_mode_seg="constant",
        padding_value_seg=-1,
        **options,
    )
    if arguments.do_dummy_2d:
        return [Convert3DTo2D(), spatial, Convert2DTo3D()]
    return [spatial]


def intensity_transforms(do_dummy_2d: bool) -> list[Transform]:
    """Return the default pipeline's intensity transforms, each with its probability."""
    noise = GaussianNoise(noise_variance=(0, 0.1), p_per_channel=1, synchronize_channels=True)
    # benchmark=True is nnU-Net's argument, without effect here: detaug's blur has one algorithm.
    blur = GaussianBlur(
        (0.5, 1.0),
        synchronize_channels=False,
        synchronize_axes=False,
        p_per_channel=0.5,
        benchmark=True,
    )
    brightness = MultiplicativeBrightness(
        multiplier_range=BGContrast((0.75, 1.25)), synchronize_channels=False, p_per_channel=1
    )
    contrast = Contrast(
        contrast_range=BGContrast((0.75, 1.25)),
        preserve_range=True,
        synchronize_channels=False,
        p_per_channel=1,
    )
    gamma: dict[str, Any] = {
        "gamma": BGContrast((0.7, 1.5)),
        "synchronize_channels": False,
        "p_per_channel": 1,
        "p_retain_stats": 1,
    }
    return [
        RandomApply(noise, 0.1),
        RandomApply(blur, 0.2),
        RandomApply(brightness, 0.15),
        RandomApply(contrast, 0.15),
        RandomApply(low_resolution((0.5, 1), do_dummy_2d), 0.25),
        RandomApply(Gamma(p_invert_image=1, **gamma), 0.1),
        RandomApply(Gamma(p_invert_image=0, **gamma), 0.3),
    ]


def low_resolution(scale: RandomScalar, do_dummy_2d: bool) -> Transform:
    """Return simulated low resolution; the first axis keeps its own if it is not deformed."""
    return SimulateLowResolution(
        scale=scale,
        synchronize_channels=False,
        synchronize_axes=True,
        ignore_axes=(0,) if do_dummy_2d else None,
        allowed_channels=None,
        p_per_channel=0.5,
    )


def mirroring(axes: Sequence[int] | None) -> list[Transform]:
    """Return mirroring along these axes, if there are any."""
    if axes is None or len(axes) == 0:
        return []
    return [Mirror(allowed_axes=tuple(axes))]


def previous_stage(
    is_cascaded: bool, foreground_labels: Labels | None, p_per_label: float | None = None
) -> list[Transform]:
    """Return the transforms that move a previous stage's segmentation into the image.

    Args:
        is_cascaded: False: there is none, and no transforms.
        foreground_labels: labels that it may have.
        p_per_label: the probability that a label is made to err as a previous stage does; None: it
            stays as it is.
    """
    if not is_cascaded:
        return []
    if foreground_labels is None:
        raise ValueError(
            "a cascade needs foreground_labels: those that the previous stage's segmentation may"
            " have"
        )
    moved = MoveSegAsOneHotToData(
        source_channel_idx=1, all_labels=list(foreground_labels), remove_channel_from_source=True
    )
    if p_per_label is None:
        return [moved]
    # The last channels of the image, where they have just been put.
    channels = list(range(-len(foreground_labels), 0))
    morphology = ApplyRandomBinaryOperator(
        channel_idx=channels, strel_size=(1, 8), p_per_label=p_per_label
    )
    removal = RemoveRandomConnectedComponentFromOneHotEncoding(
        channels,
        fill_with_other_class_p=0,
        dont_do_if_covers_more_than_x_percent=0.15,
        p_per_label=p_per_label,
    )
    return [moved, RandomApply(morphology, 0.4), RandomApply(removal, 0.2)]


def targets(
    regions: Sequence[Region] | None, ignore_label: int | None, ds_scales: Scales | None
) -> list[Transform]:
    """Return the transforms that make the loss's targets.

    They are regions as channels, and one segmentation for each level of deep supervision.
    """
    transforms: list[Transform] = []
    if regions is not None:
        # The ignore label comes last: nnU-Net's loss takes its mask from there.
        channels = list(regions)
        if ignore_label is not None:
            channels.append(ignore_label)
        transforms.append(ConvertSegmentationToRegions(regions=channels, channel_in_seg=0))
    if ds_scales is not None:
        transforms.append(DownsampleSegForDS(ds_scales=ds_scales))
    return transforms
