"""nnU-Net's own loader and transforms on a small data set, as nnUNetTrainer combines them."""

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

#: Shape of a patch after the transforms, and as it is cut, in voxels.
PATCH = (16, 16, 16)
LARGER_PATCH = (22, 22, 22)
LABELS = [1, 2, 3]


def blobs(rng: np.random.Generator) -> np.ndarray:
    """Return labels (30, 30, 30) with three balls of each label."""
    grid = np.stack(np.meshgrid(*[np.arange(30.0)] * 3, indexing="ij"))
    labels = np.zeros((30, 30, 30), np.int16)
    for label in LABELS * 3:
        centre = rng.uniform(5, 25, (3, 1, 1, 1))
        squared_distance = ((grid - centre) ** 2).sum(0)
        labels[squared_distance < rng.uniform(4, 25)] = label
    return labels


def write_dataset(folder: Path) -> Path:
    """Write five cases and their segmentations of a previous stage; return the folder."""
    (folder / "previous").mkdir(parents=True)
    rng = np.random.default_rng(7)
    for index in range(5):
        name = f"case_{index}"
        labels = blobs(rng)
        image = (labels + rng.normal(0, 0.3, labels.shape)).astype(np.float32)
        locations = {label: np.argwhere(labels[None] == label) for label in LABELS}
        np.savez(folder / f"{name}.npz", data=image[None], seg=labels[None])
        write_pickle({"class_locations": locations}, str(folder / f"{name}.pkl"))
        np.savez(folder / "previous" / f"{name}.npz", seg=np.roll(labels, 1, axis=0))
    return folder


def label_manager() -> LabelManager:
    """Return nnU-Net's description of the labels."""
    return LabelManager({"background": 0, "one": 1, "two": 2, "three": 3}, None)


def transforms(cascade: bool = False) -> BasicTransform:
    """Return nnU-Net's training transforms, for a cascade's second stage if asked for."""
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
    """Let the transforms of these classes be applied to every sample; return the pipeline."""
    for part in transform.transforms:
        if isinstance(part, RandomTransform) and isinstance(part.transform, kinds):
            part.apply_probability = 1
    return transform


#: Classes of the transforms that only a cascade has.
CASCADE = (
    ApplyRandomBinaryOperatorTransform,
    RemoveRandomConnectedComponentFromOneHotEncodingTransform,
)


class WitnessingLoader(nnUNetDataLoader):
    """nnU-Net's loader, whose batches say which process made them."""

    #: Time that a batch takes, in seconds.
    slow = 0.0

    def generate_train_batch(self) -> dict[str, Any]:
        dawdle(self.slow)
        return {**super().generate_train_batch(), WITNESS: witness()}


def loader(
    folder: Path, transform: BasicTransform | None, cascade: bool = False, **options: Any
) -> WitnessingLoader:
    """Return a loader of batches of two.

    Args:
        folder: of the data set.
        transform: applied to each sample.
        cascade: whether the previous stage's segmentations are read.
        options: of nnU-Net's loader.
    """
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


def random_time() -> float:
    """Return a random number, as a clock that shows anything."""
    return random.SystemRandom().random()


class LyingClock:
    """A transform that runs others while the clock of the blur transform shows random times.

    The blur transform chooses its method by timing.
    """

    def __init__(self, transform: BasicTransform) -> None:
        self.transform = transform

    def __call__(self, **data: Any) -> dict[str, Any]:
        original = gaussian_blur.time
        gaussian_blur.time = random_time
        try:
            return self.transform(**data)
        finally:
            gaussian_blur.time = original
