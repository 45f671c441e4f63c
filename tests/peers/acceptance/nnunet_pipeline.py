"""nnU-Net's own loader and transforms on a small data set, as nnUNetTrainer puts them together."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
from batchgenerators.utilities.file_and_folder_operations import write_pickle
from batchgeneratorsv2.transforms.base.basic_transform import BasicTransform
from batchgeneratorsv2.transforms.nnunet.random_binary_operator import (
    ApplyRandomBinaryOperatorTransform,
)
from batchgeneratorsv2.transforms.nnunet.remove_connected_components import (
    RemoveRandomConnectedComponentFromOneHotEncodingTransform,
)
from batchgeneratorsv2.transforms.noise import gaussian_blur
from batchgeneratorsv2.transforms.utils.compose import ComposeTransforms
from batchgeneratorsv2.transforms.utils.random import RandomTransform
from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetNumpy
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from nnunetv2.utilities.label_handling.label_handling import LabelManager

from tests.support.loaders import dawdle
from tests.support.witness import WITNESS, witness

PATCH = (16, 16, 16)
LARGER_PATCH = (22, 22, 22)
LABELS = [1, 2, 3]


def write_dataset(folder: Path) -> Path:
    """Five cases of blobs with three labels, and the segmentations that a first stage might have
    made of them.
    """
    (folder / "previous").mkdir(parents=True)
    rng = np.random.default_rng(7)
    grid = np.stack(np.meshgrid(*[np.arange(30.0)] * 3, indexing="ij"))
    for case in range(5):
        labels = np.zeros((30, 30, 30), np.int16)
        for label in LABELS * 3:
            centre = rng.uniform(5, 25, (3, 1, 1, 1))
            labels[((grid - centre) ** 2).sum(0) < rng.uniform(4, 25)] = label
        image = (labels + rng.normal(0, 0.3, labels.shape)).astype(np.float32)[None]
        locations = {label: np.argwhere(labels[None] == label) for label in LABELS}
        np.savez(folder / f"case_{case}.npz", data=image, seg=labels[None])
        write_pickle({"class_locations": locations}, str(folder / f"case_{case}.pkl"))
        np.savez(folder / "previous" / f"case_{case}.npz", seg=np.roll(labels, 1, axis=0))
    return folder


def label_manager() -> LabelManager:
    return LabelManager({"background": 0, "one": 1, "two": 2, "three": 3}, None)


def transforms(cascade: bool = False) -> BasicTransform:
    return nnUNetTrainer.get_training_transforms(
        np.array(PATCH),
        (-0.5, 0.5),
        [[1, 1, 1], [0.5, 0.5, 0.5], [0.25, 0.25, 0.25]],
        (0, 1, 2),
        False,
        use_mask_for_norm=[False],
        is_cascaded=cascade,
        foreground_labels=LABELS if cascade else None,
    )


def always(transform: ComposeTransforms, kinds: tuple[type, ...]) -> ComposeTransforms:
    """Make the transforms of those kinds happen to every sample."""
    for each in transform.transforms:
        if isinstance(each, RandomTransform) and isinstance(each.transform, kinds):
            each.apply_probability = 1
    return transform


CASCADE = (
    ApplyRandomBinaryOperatorTransform,
    RemoveRandomConnectedComponentFromOneHotEncodingTransform,
)


class WitnessingLoader(nnUNetDataLoader):
    """nnU-Net's loader that says who made a batch; `slow` in seconds."""

    slow = 0.0

    def generate_train_batch(self) -> dict[str, Any]:
        dawdle(self.slow)
        return {**super().generate_train_batch(), WITNESS: witness()}


def loader(
    folder: Path, transform: BasicTransform | None, cascade: bool = False, **options: Any
) -> WitnessingLoader:
    previous = str(folder / "previous") if cascade else None
    dataset = nnUNetDatasetNumpy(str(folder), folder_with_segs_from_previous_stage=previous)
    return WitnessingLoader(
        dataset,
        2,
        LARGER_PATCH,
        PATCH,
        label_manager(),
        0.33,
        None,
        None,
        transforms=transform,
        **options,
    )


def clock_without_meaning() -> float:
    return random.SystemRandom().random()


class LyingClock:
    """Gives the blur transform a clock that makes its choice by timing a matter of chance, then
    calls the others.
    """

    def __init__(self, transform: BasicTransform) -> None:
        self.transform = transform

    def __call__(self, **data: Any) -> dict[str, Any]:
        real, gaussian_blur.time = gaussian_blur.time, clock_without_meaning
        try:
            return self.transform(**data)
        finally:
            gaussian_blur.time = real
