"""The two loaders that are compared, made for the same task, and how often nnU-Net's gates open."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.report import OURS
from benchmarks.settings import SEED

NNUNET = "nnU-Net"

#: ``nnUNetTrainer``'s oversample_foreground_percent.
FOREGROUND_SHARE = 0.33

#: nnU-Net's probabilities of rotating and of scaling, which decide most of a sample's time.
P_ROTATION = P_SCALING = 0.2


@dataclass(frozen=True)
class Task:
    """What is loaded.

    Attributes:
        name: as pages and results have it.
        configuration: nnU-Net's.
        patch: what the network gets, voxels.
        batch_size: samples.
        angle: radians; rotations are drawn from ``-angle`` to ``angle``, as nnU-Net does here.
        levels: of deep supervision, as nnU-Net's network for such a patch has them.
        rounds: of 25 batches each, for the rows on speed.
    """

    name: str
    configuration: str
    patch: tuple[int, ...]
    batch_size: int
    angle: float
    levels: int
    rounds: int

    def settings(self) -> dict[str, Any]:
        """Return what a result's record says of the task."""
        return {
            "patch": list(self.patch),
            "read": [int(extent) for extent in self.read_patch()],
            "batch_size": self.batch_size,
        }

    def read_patch(self) -> Any:
        """Return nnU-Net's enlarged patch."""
        from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size

        rotation = (-self.angle, self.angle)
        return get_patch_size(self.patch, rotation, rotation, rotation, (0.85, 1.25))


IN_3D = Task(
    name="3d_fullres, 128³, batch 2",
    configuration="3d_fullres",
    patch=(128, 128, 128),
    batch_size=2,
    angle=math.radians(30),
    levels=5,
    rounds=5,
)
IN_2D = Task(
    name="2d, 320², batch 32",
    configuration="2d",
    patch=(320, 320),
    batch_size=32,
    angle=math.radians(180),
    levels=6,
    rounds=7,
)


def make_loader(
    system: str, task: Task, data: Preprocessed, kind: Callable[..., Any] | None = None
) -> Any:
    """Return nnU-Net's loader with its transforms, or detaug's with detaug's.

    Args:
        system: `NNUNET` or `OURS`.
        task: what is loaded.
        data: from where.
        kind: another class of loader with the same arguments.
    """
    from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader
    from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
    from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

    from detaug.nnunet import training_transforms
    from detaug.nnunet.loading import PatchSource

    build: Any = nnUNetTrainer.get_training_transforms
    loader: Any = nnUNetDataLoader
    if system == OURS:
        build = training_transforms
        loader = PatchSource
    axes = len(task.patch)
    scales = [[1 / 2**level] * axes for level in range(task.levels)]
    transforms = build(task.patch, (-task.angle, task.angle), scales, tuple(range(axes)), False)
    return (kind or loader)(
        nnUNetDatasetBlosc2(str(data.folder)),
        task.batch_size,
        task.read_patch(),
        task.patch,
        data.label_manager(),
        oversample_foreground_percent=FOREGROUND_SHARE,
        transforms=transforms,
    )


@contextmanager
def gates_set(loader: Any, rotates: bool, scales: bool) -> Iterator[None]:
    """Have every sample rotated or not, and scaled or not, inside the block.

    Everything else is drawn as ever.
    """
    (spatial,) = [
        transform
        for transform in loader.transforms.transforms
        if type(transform).__name__ == "SpatialTransform"
    ]
    before = spatial.p_rotation, spatial.p_scaling
    spatial.p_rotation = float(rotates)
    spatial.p_scaling = float(scales)
    try:
        yield
    finally:
        spatial.p_rotation, spatial.p_scaling = before


def batch_maker(system: str, loader: Any) -> Callable[[int], Any]:
    """Return a function that makes batch n of a loader in this process; n seeds what it draws."""
    from detaug.seeding.current import Current, SeedBranch, making
    from detaug.seeding.generators import reseed_global_rngs
    from detaug.seeding.tree import SeedTree

    tree = SeedTree(SEED)

    def make_ours(number: int) -> Any:
        with making(Current(SeedBranch(tree, 1), 0, number)):
            return loader.generate_train_batch()

    def make_theirs(number: int) -> Any:
        reseed_global_rngs(tree.sequence(0, number))
        return loader.generate_train_batch()

    if system == OURS:
        return make_ours
    return make_theirs
