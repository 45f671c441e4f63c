"""The rows of all other transforms: never slower than batchgeneratorsv2, and 1.5 times as fast where a kernel helps."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from benchmarks.report import Row
from benchmarks.transforms import inputs, peers
from benchmarks.transforms.timing import Settings, alternating, one_thread, row_of

BGV2 = "batchgeneratorsv2"
KERNEL, AS_FAST = 1.5, 1.0


@dataclass(frozen=True)
class Other:
    """One transform.

    Attributes:
        module: where batchgeneratorsv2 has it, below ``batchgeneratorsv2.transforms``.
        theirs: its name there. Ours follows from detaug's alias of the same name.
        arguments: of both constructors.
        bound: how many times faster ours has to be.
        arrays: makes what both are given.
    """

    module: str
    theirs: str
    arguments: dict[str, Any]
    bound: float
    arrays: Callable[[], peers.Arrays]


def image() -> peers.Arrays:
    """128³ float32."""
    return {"image": inputs.volume(inputs.PATCH)[0]}


def image_and_labels() -> peers.Arrays:
    """128³ float32, and int16 labels -1, 0, 1, 2."""
    image, labels = inputs.volume(inputs.PATCH)
    return {"image": image, "segmentation": labels}


def two_channels() -> peers.Arrays:
    """Two images of 128³."""
    return {"image": inputs.volume(inputs.PATCH, channels=2)[0]}


def two_label_channels() -> peers.Arrays:
    """As in a cascade: the second channel is the previous stage's segmentation."""
    image, labels = inputs.volume(inputs.PATCH)
    return {"image": image, "segmentation": torch.cat([labels, labels.clamp(min=0)])}


def one_hot() -> peers.Arrays:
    """An image and two one-hot channels."""
    image, labels = inputs.volume(inputs.PATCH)
    return {"image": torch.cat([image, (labels == 1).float(), (labels == 2).float()])}


_LOCAL = {"scale": (20, 60), "loc": (0, 1)}

OTHERS: dict[str, Other] = {
    "brightness, multiplied": Other(
        "intensity.brightness",
        "MultiplicativeBrightnessTransform",
        {"multiplier_range": (0.75, 1.25), "synchronize_channels": False},
        AS_FAST,
        image,
    ),
    "brightness, added": Other(
        "intensity.brightness",
        "BrightnessAdditiveTransform",
        {"mu": 0, "sigma": 0.5},
        AS_FAST,
        image,
    ),
    "contrast": Other(
        "intensity.contrast",
        "ContrastTransform",
        {"contrast_range": (0.75, 1.25), "preserve_range": True, "synchronize_channels": False},
        KERNEL,
        image,
    ),
    "inversion": Other(
        "intensity.inversion", "InvertImageTransform", {"p_invert_image": 1}, AS_FAST, image
    ),
    "outliers cut off": Other(
        "intensity.random_clip", "CutOffOutliersTransform", {}, KERNEL, image
    ),
    "Rician noise": Other(
        "noise.rician", "RicianNoiseTransform", {"noise_variance": (0.05, 0.1)}, KERNEL, image
    ),
    "median filter, 3": Other(
        "noise.median_filter", "MedianFilterTransform", {"filter_size": 3}, KERNEL, image
    ),
    "median filter, 5": Other(
        "noise.median_filter", "MedianFilterTransform", {"filter_size": 5}, KERNEL, image
    ),
    "sharpening": Other(
        "noise.sharpen", "SharpeningTransform", {"strength": (0.1, 1)}, KERNEL, image
    ),
    "blank rectangles": Other(
        "noise.blank_rectangle",
        "BlankRectangleTransform",
        {"rectangle_size": [[12, 42]] * 3, "rectangle_value": 0.0, "num_rectangles": (1, 5)},
        AS_FAST,
        image,
    ),
    "brightness gradient": Other(
        "local.brightness_gradient",
        "BrightnessGradientAdditiveTransform",
        {**_LOCAL, "max_strength": 2.0},
        KERNEL,
        image,
    ),
    "local gamma": Other("local.local_gamma", "LocalGammaTransform", _LOCAL, KERNEL, image),
    "local contrast": Other(
        "local.local_contrast", "LocalContrastTransform", _LOCAL, KERNEL, image
    ),
    "local smoothing": Other(
        "local.local_smoothing", "LocalSmoothingTransform", _LOCAL, KERNEL, image
    ),
    "mirror": Other(
        "spatial.mirroring",
        "MirrorTransform",
        {"allowed_axes": (0, 1, 2)},
        AS_FAST,
        image_and_labels,
    ),
    "quarter turns": Other(
        "spatial.rot90",
        "Rot90Transform",
        {"num_axis_combinations": 1, "allowed_axes": {0, 1, 2}},
        AS_FAST,
        image_and_labels,
    ),
    "axes transposed": Other(
        "spatial.transpose",
        "TransposeAxesTransform",
        {"allowed_axes": {0, 1, 2}},
        AS_FAST,
        image_and_labels,
    ),
    "channel misaligned": Other(
        "spatial.channel_misalignment",
        "ChannelMisalignmentTransform",
        {
            "im_channels_2_misalign": [1],
            "squeezing_zyx": (0.1, 0.1, 0.1),
            "p_squeeze": 1.0,
            "rotation_ax_cor_sag": (math.pi / 12,) * 3,
            "rad_or_deg": "rad",
            "p_rotation": 1.0,
            "shift_zyx": (2, 8, 8),
            "p_shift": 1.0,
        },
        KERNEL,
        two_channels,
    ),
    "segmentation to one-hot channels": Other(
        "nnunet.seg_to_onehot",
        "MoveSegAsOneHotToDataTransform",
        {"source_channel_idx": 1, "all_labels": (1, 2)},
        KERNEL,
        two_label_channels,
    ),
    "random binary operator": Other(
        "nnunet.random_binary_operator",
        "ApplyRandomBinaryOperatorTransform",
        {"channel_idx": [-2, -1], "strel_size": (1, 8)},
        KERNEL,
        one_hot,
    ),
    "random component removed": Other(
        "nnunet.remove_connected_components",
        "RemoveRandomConnectedComponentFromOneHotEncodingTransform",
        {
            "channel_idx": [-2, -1],
            "fill_with_other_class_p": 0,
            "dont_do_if_covers_more_than_x_percent": 0.15,
        },
        KERNEL,
        one_hot,
    ),
    "image masked": Other(
        "utils.nnunet_masking",
        "MaskImageTransform",
        {"apply_to_channels": [0]},
        KERNEL,
        image_and_labels,
    ),
    "label removed": Other(
        "utils.remove_label",
        "RemoveLabelTransform",
        {"label_value": -1, "set_to": 0},
        KERNEL,
        image_and_labels,
    ),
    "segmentation to regions": Other(
        "utils.seg_to_regions",
        "ConvertSegmentationToRegionsTransform",
        {"regions": [[1, 2], [2]]},
        KERNEL,
        image_and_labels,
    ),
    "deep supervision": Other(
        "utils.deep_supervision_downsampling",
        "DownsampleSegForDSTransform",
        {"ds_scales": [1, 0.5, 0.25, 0.125, 0.0625]},
        KERNEL,
        image_and_labels,
    ),
    "channels moved": Other(
        "utils.move_channels",
        "MoveChannelsTransform",
        {"channel_ids": (1,), "source_key": "image", "target_key": "regression_target"},
        AS_FAST,
        two_channels,
    ),
}


def measure(name: str) -> Callable[[Settings], Row]:
    """The function that measures this row."""

    def measured(settings: Settings) -> Row:
        one_thread()
        other = OTHERS[name]
        ours, theirs, arrays = _made(other)
        systems = {
            "detaug": peers.detaug(ours, arrays),
            BGV2: peers.batchgeneratorsv2(theirs, arrays),
        }
        return row_of(
            name,
            alternating(systems, settings),
            {BGV2: other.bound},
            {"arguments": repr(other.arguments)},
        )

    return measured


#: Those that do little more than read and write memory, for which it matters whether they may write into what they are given:
#: within a pipeline, what an earlier transform made.
READ_AND_WRITE = (
    "brightness, added",
    "inversion",
    "blank rectangles",
    "image masked",
    "axes transposed",
)


def measure_within(name: str) -> Callable[[Settings], Row]:
    """The function that measures a row of transforms within a pipeline of either library."""

    def measured(settings: Settings) -> Row:
        one_thread()
        ours, theirs, arrays = _made(OTHERS[name])
        systems = {
            "detaug": peers.within_a_pipeline(ours, arrays),
            BGV2: peers.composed_batchgeneratorsv2(theirs, arrays),
        }
        shown = {"arguments": repr(OTHERS[name].arguments)}
        return row_of(
            f"{name}, within a pipeline", alternating(systems, settings), {BGV2: KERNEL}, shown
        )

    return measured


def _made(other: Other) -> tuple[Any, Any, peers.Arrays]:
    """Ours, theirs, and what both are given."""
    from detaug.transforms import bgv2

    module = importlib.import_module(f"batchgeneratorsv2.transforms.{other.module}")
    ours, theirs = (getattr(library, other.theirs)(**other.arguments) for library in (bgv2, module))
    return ours, theirs, other.arrays()
