"""The two loaders that are compared, made for the same task, and how often nnU-Net's gates open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from benchmarks.engine.settings import Settings
from benchmarks.nnunet.dataset import FOUR_CHANNELS, ONE_CHANNEL, DatasetKind, Preprocessed

FOREGROUND_SHARE = 0.33  # nnUNetTrainer's oversample_foreground_percent
SEED = 20261121
DETAUG, STOCK = "detaug", "nnU-Net"

#: nnU-Net's probabilities of rotating and of scaling, which decide what most of a sample's time goes into.
P_ROTATION = P_SCALING = 0.2


def as_trained(system: str, settings: Settings) -> Settings:
    """The settings with which nnU-Net's trainer, or ours, starts its augmenter where nnU-Net's has `settings`."""
    return (
        replace(settings, num_cached=settings.num_cached * 3 // 2) if system == DETAUG else settings
    )


@dataclass(frozen=True)
class Task:
    """What is loaded.

    Attributes:
        kind, configuration: of the data set.
        patch: what the network gets, voxels.
        batch_size: samples.
        angle: radians; rotations are drawn from ``-angle`` to ``angle``, which is nnU-Net's choice for such a patch.
        levels: of deep supervision, as nnU-Net's network for such a patch has them.
    """

    kind: DatasetKind
    configuration: str
    patch: tuple[int, ...]
    batch_size: int
    angle: float
    levels: int

    def settings(self) -> dict[str, Any]:
        """For a benchmark's record."""
        return {
            "patch": list(self.patch),
            "read": [int(n) for n in self.read_patch()],
            "batch_size": self.batch_size,
            "channels": self.kind.channels,
            "cases": self.kind.cases,
        }

    def read_patch(self) -> Any:
        """nnU-Net's enlarged patch."""
        from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size

        rotation = (-self.angle, self.angle)
        return get_patch_size(self.patch, rotation, rotation, rotation, (0.85, 1.25))


IN_3D = Task(ONE_CHANNEL, "3d_fullres", (128, 128, 128), 2, math.radians(30), 5)
IN_2D = Task(ONE_CHANNEL, "2d", (320, 320), 32, math.radians(180), 6)
IN_3D_FOUR_CHANNELS = Task(FOUR_CHANNELS, "3d_fullres", (128, 128, 128), 2, math.radians(30), 5)


def make_loader(system: str, task: Task, data: Preprocessed, **options: Any) -> Any:
    """nnU-Net's loader with its transforms, or detaug's with detaug's; `options` are further arguments of it."""
    from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
    from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    from detaug.nnunet import training_transforms
    from detaug.nnunet.loading import PatchSource

    build = {DETAUG: training_transforms, STOCK: nnUNetTrainer.get_training_transforms}[system]
    dims = len(task.patch)
    scales = [[1 / 2**level] * dims for level in range(task.levels)]
    transforms = build(task.patch, (-task.angle, task.angle), scales, tuple(range(dims)), False)
    loader = {DETAUG: PatchSource, STOCK: nnUNetDataLoader}[system]
    return loader(
        nnUNetDatasetBlosc2(str(data.folder)),
        task.batch_size,
        task.read_patch(),
        task.patch,
        data.label_manager(),
        oversample_foreground_percent=FOREGROUND_SHARE,
        transforms=transforms,
        **options,
    )


@contextmanager
def gates_set(loader: Any, rotates: bool, scales: bool) -> Iterator[None]:
    """Inside, every sample is (or is not) rotated and scaled. Everything else is drawn as ever."""
    (spatial,) = [
        each for each in loader.transforms.transforms if type(each).__name__ == "SpatialTransform"
    ]
    before = spatial.p_rotation, spatial.p_scaling
    spatial.p_rotation, spatial.p_scaling = float(rotates), float(scales)
    try:
        yield
    finally:
        spatial.p_rotation, spatial.p_scaling = before


def batch_maker(system: str, loader: Any) -> Callable[[int], Any]:
    """Batch n of a loader in this process; n seeds what it draws."""
    from detaug.seeding.current import Current, SeedBranch, making
    from detaug.seeding.generators import reseed_global_rngs
    from detaug.seeding.tree import SeedTree

    tree = SeedTree(SEED)

    def detaug(number: int) -> Any:
        with making(Current(SeedBranch(tree, 1), 0, number)):
            return loader.generate_train_batch()

    def stock(number: int) -> Any:
        reseed_global_rngs(tree.sequence(0, number))
        return loader.generate_train_batch()

    return {DETAUG: detaug, STOCK: stock}[system]
