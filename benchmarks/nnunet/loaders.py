"""The loaders and pipelines that are compared, made for the same task.

What nnU-Net's gates draw makes one batch cost ten times another, and whether it rotates and scales
is most of that. So the gates of these two are set, to each of the four outcomes as often as their
probabilities say, and the rest is drawn. Both systems have the same gates in the same order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks.calls import Work, alternate
from benchmarks.nnunet.dataset import Preprocessed
from benchmarks.report import OURS
from benchmarks.settings import SEED, Settings
from detaug import SeedTree
from detaug.nnunet import training_transforms
from detaug.nnunet.compatibility import dataset_class, loader_class, trainer_class
from detaug.nnunet.loading import PatchSource
from detaug.seeding.current import Current, SeedBranch, making
from detaug.seeding.generators import reseed_global_rngs

NNUNET = "nnU-Net"

#: ``nnUNetTrainer``'s oversample_foreground_percent.
FOREGROUND_SHARE = 0.33

#: nnU-Net's angles, in radians: rotations are drawn from ``-angle`` to ``angle``.
ANGLE_3D = math.radians(30)
ANGLE_2D = math.radians(180)

#: nnU-Net's probabilities of rotating and of scaling, which decide most of a sample's time.
P_ROTATION = P_SCALING = 0.2

#: Draws of a round, and those that are not timed: nnU-Net's blur tries its algorithms in its first
#: calls.
ROUND = 25
WARM_UP = 8


@dataclass(frozen=True)
class Task:
    """What is loaded.

    Attributes:
        name: as pages and results have it.
        configuration: nnU-Net's.
        patch: what the network gets, voxels.
        batch_size: samples.
        angle: radians.
        levels: of deep supervision, as nnU-Net's network for such a patch has them.
        rounds: of 25 batches each.
    """

    name: str
    configuration: str
    patch: tuple[int, ...]
    batch_size: int
    angle: float
    levels: int
    rounds: int

    def read_patch(self) -> Any:
        """Return nnU-Net's enlarged patch."""
        from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size

        rotation = (-self.angle, self.angle)
        return get_patch_size(self.patch, rotation, rotation, rotation, (0.85, 1.25))


IN_3D = Task("3d_fullres, 128³, batch 2", "3d_fullres", (128,) * 3, 2, ANGLE_3D, 5, 5)
IN_2D = Task("2d, 320², batch 32", "2d", (320,) * 2, 32, ANGLE_2D, 6, 7)


def make_pipeline(system: str, patch: tuple[int, ...], angle: float, levels: int) -> Any:
    """Return nnU-Net's default transforms for training, or detaug's."""
    build = trainer_class().get_training_transforms
    if system == OURS:
        build = training_transforms
    axes = len(patch)
    scales = [[1 / 2**level] * axes for level in range(levels)]
    return build(patch, (-angle, angle), scales, tuple(range(axes)), False)


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
    if kind is None:
        kind = PatchSource if system == OURS else loader_class()
    return kind(
        dataset_class()(str(data.folder)),
        task.batch_size,
        task.read_patch(),
        task.patch,
        data.label_manager(),
        oversample_foreground_percent=FOREGROUND_SHARE,
        transforms=make_pipeline(system, task.patch, task.angle, task.levels),
    )


def batch_maker(system: str, loader: Any) -> Callable[[int], Any]:
    """Return a function that makes batch n of a loader in this process; n seeds what it draws."""
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


# --- gates ----------------------------------------------------------------------------------------


def gates_of_a_round() -> list[tuple[bool, bool]]:
    """Return (rotates, scales), each outcome as often as nnU-Net's probabilities say."""
    gates: list[tuple[bool, bool]] = []
    for rotates in (False, True):
        for scales in (False, True):
            p_rotates = P_ROTATION if rotates else 1 - P_ROTATION
            p_scales = P_SCALING if scales else 1 - P_SCALING
            gates += [(rotates, scales)] * round(ROUND * p_rotates * p_scales)
    return gates


#: Draw n has those of index n modulo 25.
GATES = gates_of_a_round()


@contextmanager
def gates_set(pipeline: Any, rotates: bool, scales: bool) -> Iterator[None]:
    """Have every sample rotated or not, and scaled or not, inside the block.

    Everything else is drawn as ever.
    """
    (spatial,) = [
        transform
        for transform in pipeline.transforms
        if type(transform).__name__ == "SpatialTransform"
    ]
    before = spatial.p_rotation, spatial.p_scaling
    spatial.p_rotation = float(rotates)
    spatial.p_scaling = float(scales)
    try:
        yield
    finally:
        spatial.p_rotation, spatial.p_scaling = before


def gated_rounds(
    systems: Mapping[str, Work], rounds: int, settings: Settings
) -> dict[str, list[float]]:
    """Return each system's mean CPU seconds of a draw, in every round."""
    # The gates that open rarely stand last.
    rare_first = list(reversed(range(ROUND)))
    alternate(systems, rare_first[: 2 if settings.quick else WARM_UP])
    cpu: dict[str, list[float]] = {system: [] for system in systems}
    for number in range(1, settings.rounds(rounds) + 1):
        order = np.random.default_rng([SEED, number]).permutation(ROUND)
        draws = [ROUND * number + int(index) for index in order[: settings.batches(ROUND)]]
        for system, seconds in alternate(systems, draws).items():
            cpu[system].append(fmean(draw.cpu for draw in seconds))
    return cpu
