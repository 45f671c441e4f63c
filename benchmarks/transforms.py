"""`python -m benchmarks transforms`: nnU-Net's pipelines, against batchgeneratorsv2's.

The two take turns batch by batch. nnU-Net's loader transforms the samples of a batch one after
another, so that code and memory are in the caches for all but the first of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from benchmarks.calls import Stopwatch, Work
from benchmarks.nnunet.dataset import template_of_shape
from benchmarks.nnunet.loaders import (
    ANGLE_2D,
    ANGLE_3D,
    GATES,
    NNUNET,
    gated_rounds,
    gates_set,
    make_pipeline,
)
from benchmarks.report import OURS, Row, row_of
from benchmarks.rows import rows_command
from benchmarks.settings import SEED, Measure, Settings
from detaug import SeedTree
from detaug.seeding.current import Current, SeedBranch, making
from detaug.seeding.generators import reseed_global_rngs
from detaug.system.threads import keep_one_thread
from detaug.tools.bench.timing import in_fresh_process

BGV2 = "batchgeneratorsv2"
LEVELS = 5
ROUNDS = 5

#: What nnU-Net reads around a case has this label, which its pipeline removes.
OUTSIDE = -1


@dataclass(frozen=True)
class Contest:
    """A pipeline with what it is given.

    Attributes:
        name: as pages and results have it.
        read: voxels that nnU-Net reads, so that rotating and scaling find something in the corners.
        patch: voxels of the result.
        angle: radians.
        batch: samples; nnU-Net's batch size for its references with such a patch.
    """

    name: str
    read: tuple[int, ...]
    patch: tuple[int, ...]
    angle: float
    batch: int


IN_3D = Contest("nnU-Net's 3-D pipeline", (205,) * 3, (128,) * 3, ANGLE_3D, 2)
IN_2D = Contest("nnU-Net's 2-D pipeline", (822, 602), (512,) * 2, ANGLE_2D, 12)


def measure(contest: Contest, settings: Settings) -> Row:
    """Measure detaug's pipeline and batchgeneratorsv2's on the same sample."""
    cpu = in_fresh_process(_cpu_seconds, contest, settings)
    per_sample = {
        system: [seconds / contest.batch for seconds in rounds] for system, rounds in cpu.items()
    }
    return row_of(f"{contest.name}, mean per sample", "ms", per_sample)


def _cpu_seconds(contest: Contest, settings: Settings) -> dict[str, list[float]]:
    keep_one_thread()
    image, labels = template_of_shape(contest.read)
    sample = {
        "image": torch.from_numpy(image[None]),
        "segmentation": torch.from_numpy(labels[None]).to(torch.int16),
    }
    sample["segmentation"][:, :8] = OUTSIDE
    ours = make_pipeline(OURS, contest.patch, contest.angle, LEVELS)
    ours.warm_up()
    theirs = make_pipeline(NNUNET, contest.patch, contest.angle, LEVELS)
    works = {OURS: _work(ours, sample, contest.batch), BGV2: _work(theirs, sample, contest.batch)}
    return gated_rounds(works, ROUNDS, settings)


def _work(pipeline: Any, sample: dict[str, torch.Tensor], batch: int) -> Work:
    """Return work whose draws are numbers of batches."""
    tree = SeedTree(SEED)

    def work(number: int, stopwatch: Stopwatch) -> None:
        with gates_set(pipeline, *GATES[number % len(GATES)]):
            for draw in range(number * batch, (number + 1) * batch):
                own = {key: tensor.clone() for key, tensor in sample.items()}
                # batchgeneratorsv2's draws from torch and NumPy, detaug's from this context.
                reseed_global_rngs(tree.sequence(0, draw))
                with making(Current(SeedBranch(tree, 1), 0, draw)), stopwatch:
                    pipeline(**own)

    return work


ROWS: dict[str, Measure] = {
    "pipeline-3d": partial(measure, IN_3D),
    "pipeline-2d": partial(measure, IN_2D),
}

main = rows_command("detaug's pipelines against batchgeneratorsv2's, on one thread", ROWS)
