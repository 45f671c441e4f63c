"""Row: nnU-Net's own 3-D loader with its own transforms on real MRI."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from benchmarks.engine.loaders import BatchNumber
from benchmarks.engine.settings import Settings
from benchmarks.engine.systems import SEED, SYSTEMS, batch_number_for
from benchmarks.engine.timing import seconds_per_batch
from benchmarks.report import Row, ratio_check, speed_checks
from detaug.bench.measuring import Ratio, in_fresh_process, interleaved

STOCK = "NonDetMultiThreadedAugmenter"
NAMES = ("detaug", STOCK)
BATCHES, ROUNDS = 96, 7
#: Long enough for every worker of the stock pipeline to be through with timing its blur's algorithms (seconds, once).
WARMUP = 24

PATCH = (128, 128, 128)
BATCH_SIZE = 2
ROTATION = (
    -30 / 360 * 2 * math.pi,
    30 / 360 * 2 * math.pi,
)  # radians: nnUNetTrainer's for isotropic 3-D patches
SCALES = [[1 / 2**level] * 3 for level in range(5)]  # a six-stage network's deep supervision
FOREGROUND_SHARE = 0.33  # nnUNetTrainer's oversample_foreground_percent

DATASET_ID = 1
DATASET = f"Dataset{DATASET_ID:03d}_MNI152"
CASES = 5
CASE_SHAPE = (
    140,
    176,
    150,
)  # voxels of 1 mm: nearly the whole brain, with room for five different crops


@dataclass(frozen=True)
class NnunetTask:
    """A preprocessed data set, from which every measurement makes its loader."""

    folder: Path
    plans: dict[str, Any]
    dataset_json: dict[str, Any]

    def loader(self, number: BatchNumber) -> Any:
        """A `numbered_loader` (see there) that reads enlarged patches of 205³ voxels and augments them to `PATCH`."""
        from nnunetv2.training.data_augmentation.compute_initial_patch_size import get_patch_size
        from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

        transforms = nnUNetTrainer.get_training_transforms(
            PATCH, ROTATION, SCALES, (0, 1, 2), False
        )
        return self._loader(
            number, get_patch_size(PATCH, ROTATION, ROTATION, ROTATION, (0.85, 1.25)), transforms
        )

    def validation_loader(self, number: BatchNumber) -> Any:
        """The same without augmentation, as nnU-Net validates."""
        from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

        return self._loader(number, PATCH, nnUNetTrainer.get_validation_transforms(SCALES))

    def _loader(self, number: BatchNumber, read_patch: Any, transforms: Any) -> Any:
        from nnunetv2.training.dataloading.nnunet_dataset import nnUNetDatasetBlosc2
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        labels = PlansManager(dict(self.plans)).get_label_manager(self.dataset_json)
        return numbered_loader(number)(
            nnUNetDatasetBlosc2(str(self.folder)),
            BATCH_SIZE,
            read_patch,
            PATCH,
            labels,
            oversample_foreground_percent=FOREGROUND_SHARE,
            transforms=transforms,
        )


def numbered_loader(number: BatchNumber) -> Any:
    """nnUNetDataLoader that takes its random numbers from the batch's number, under every system.

    The transforms' gates make one batch cost several times another. With the same batches on both sides, what differs
    is the systems; the reseeding costs both the same 0.02 % of a batch.
    """
    from nnunetv2.training.dataloading.data_loader import nnUNetDataLoader

    from detaug.seeding.generators import reseed_global_rngs
    from detaug.seeding.tree import SeedTree

    seeds = SeedTree(SEED)

    class NumberedLoader(nnUNetDataLoader):  # type: ignore[misc]
        def generate_train_batch(self) -> dict[str, Any]:
            reseed_global_rngs(seeds.sequence(0, number.next()))
            return super().generate_train_batch()  # type: ignore[no-any-return]

    return NumberedLoader


@contextmanager
def nnunet_task() -> Iterator[NnunetTask]:
    """nnU-Net's own planning and preprocessing of crops of the MNI152 template, in a temporary folder."""
    from detaug.demo.nnunet import nnunet_folders
    from detaug.nnunet.verification.settings import load_plans

    with TemporaryDirectory() as folder, nnunet_folders(Path(folder)) as root:
        # In a process of its own: preprocessing starts threads, and a process with threads should not be forked.
        in_fresh_process(_prepare, root)
        plans, dataset_json = load_plans(DATASET)
        _import_nnunet()
        yield NnunetTask(
            root / "preprocessed" / DATASET / "nnUNetPlans_3d_fullres", plans, dataset_json
        )


def _prepare(root: Path) -> None:
    from detaug.demo.nnunet import plan_and_preprocess, write_raw_dataset

    logging.disable(logging.WARNING)
    write_raw_dataset(root / "raw" / DATASET, _crops(), ("grey_matter", "white_matter"))
    plan_and_preprocess(DATASET_ID)


def _crops() -> Iterator[tuple[str, list[Any], Any]]:
    """Evenly along the diagonal of the brain's box."""
    from detaug.demo.mri import load_template

    template = load_template()
    for case in range(CASES):
        pairs = zip(template.image.shape, CASE_SHAPE, strict=True)
        starts = [int((there - size) * case / (CASES - 1)) for there, size in pairs]
        box = tuple(
            slice(start, start + size) for start, size in zip(starts, CASE_SHAPE, strict=True)
        )
        yield f"brain_{case:03d}", [template.image[box]], template.labels[box].astype("uint8")


def _import_nnunet() -> None:
    """Once here, and not again in each measurement's process; a training has it imported as well."""
    import nnunetv2.training.dataloading.data_loader
    import nnunetv2.training.nnUNetTrainer.nnUNetTrainer  # noqa: F401


def measure_nnunet(settings: Settings) -> Row:
    """Batches/s in steady state; both systems make the same numbered batches.

    CPU time per batch is shown too: it hardly notices who else is on the machine.
    """
    rounds, batches = settings.rounds(ROUNDS), settings.batches(BATCHES)
    with nnunet_task() as task:
        runs = interleaved(
            NAMES,
            rounds,
            lambda system: in_fresh_process(_seconds, task, system, settings, batches),
        )
    seconds = {name: [wall for wall, _ in runs[name]] for name in NAMES}
    cpu = {name: [cpu for _, cpu in runs[name]] for name in NAMES}
    return Row(
        name="nnU-Net's 3-D loader and transforms",
        unit="batches/s",
        ours=1 / median(seconds["detaug"]),
        checks=[
            *speed_checks(seconds, {STOCK: 1.0}),
            ratio_check(
                f"{STOCK}, batches per CPU second",
                1 / median(cpu[STOCK]),
                Ratio.of(cpu[STOCK], cpu["detaug"]),
            ),
        ],
        repeats=rounds,
        settings={
            "processes": settings.processes,
            "num_cached": settings.num_cached,
            "batches": batches,
            "patch": PATCH,
            "batch_size": BATCH_SIZE,
            "cases": CASES,
            "case_shape": CASE_SHAPE,
        },
        details={"seconds_per_batch": seconds, "cpu_seconds_per_batch": cpu},
    )


def tree_cpu_seconds(pid: int) -> float:
    """User and system time so far of `pid`, of its descendants that are alive, and of those that they have waited for."""
    total = 0.0
    root = psutil.Process(pid)
    for process in [root, *root.children(recursive=True)]:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


def _seconds(
    task: NnunetTask, system: str, settings: Settings, batches: int
) -> tuple[float, float]:
    """Wall-clock and CPU seconds per batch."""
    logging.getLogger("detaug").addFilter(
        lambda record: "benchmark=True" not in record.getMessage()
    )  # as it should
    loader = task.loader(batch_number_for(system))
    with SYSTEMS[system](loader, settings) as iterator:
        seconds_per_batch(iterator, 0, WARMUP)
        before = tree_cpu_seconds(os.getpid())
        wall = seconds_per_batch(iterator, 0, batches)
        return wall, (tree_cpu_seconds(os.getpid()) - before) / batches
