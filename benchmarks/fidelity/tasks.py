"""The tasks: data sets that nnU-Net plans and preprocesses, with networks for a minute of CPU."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.fidelity import images
from detaug.tools.bench.timing import in_fresh_process


@dataclass(frozen=True)
class Task:
    """One task, and how it is trained; both arms alike.

    Attributes:
        name: of the task.
        number: nnU-Net's number of the data set.
        cases: makes them.
        package: where the images come from.
        labels: what there is to segment; the background is 0.
        configuration: nnU-Net's.
        patch: voxels.
        batch_size: samples.
        features: of the network's stages; every one after the first halves the resolution.
        epochs, iterations, validation_iterations: nnU-Net trains 1000 of 250 and 50.
    """

    name: str
    number: int
    cases: Callable[[], Iterator[images.Case]]
    package: str
    labels: tuple[str, ...]
    configuration: str
    patch: tuple[int, ...]
    batch_size: int
    features: tuple[int, ...]
    epochs: int
    iterations: int
    validation_iterations: int = 2

    @property
    def dataset(self) -> str:
        """The name that nnU-Net knows it by."""
        return f"Dataset{self.number:03d}_{self.name.title().replace('-', '')}"

    def settings(self) -> dict[str, Any]:
        """Return what must be equal for results to be compared."""
        plain = asdict(self)
        del plain["cases"], plain["package"]
        return json.loads(json.dumps(plain))  # type: ignore[no-any-return]


TISSUE = ("grey_matter", "white_matter")
IN_3D: dict[str, Any] = {
    "configuration": "3d_fullres",
    "patch": (32, 32, 32),
    "batch_size": 2,
    "features": (8, 16, 32),
    "epochs": 8,
    "iterations": 25,
}
IN_2D: dict[str, Any] = {
    "configuration": "2d",
    "patch": (64, 64),
    "batch_size": 8,
    "features": (8, 16, 32, 64),
    "epochs": 15,
    "iterations": 25,
}
TASKS = {
    task.name: task
    for task in (
        Task("tissue-3d", 1, images.tissue_blocks, "nilearn", TISSUE, **IN_3D),
        Task("tissue-2d", 3, images.tissue_planes, "nilearn", TISSUE, **IN_2D),
        Task("nuclei-2d", 4, images.nuclei, "stardist", ("nucleus",), **IN_2D),
    )
}


def prepare(root: Path, task: Task) -> None:
    """Make nnU-Net's ``raw`` and ``preprocessed`` of a task below `root`, unless they are there."""
    finished = root / f"{task.dataset}.finished"
    if not finished.exists():
        # Preprocessing starts threads, and a process with threads should not be forked.
        in_fresh_process(_make, root, task)
        finished.touch()


def _make(root: Path, task: Task) -> None:
    from detaug.demo.nnunet import nnunet_folders, plan_and_preprocess, write_raw_dataset

    with nnunet_folders(root):
        cases = list(task.cases())
        # nnU-Net's first axis is the last one of the file: planes then lie across it.
        written = ((case.name, [case.image.T], case.labels.T) for case in cases)
        write_raw_dataset(root / "raw" / task.dataset, written, task.labels)
        plan_and_preprocess(task.number, (task.configuration,))
        folder = root / "preprocessed" / task.dataset
        split = {
            "train": [case.name for case in cases if not case.validates],
            "val": [case.name for case in cases if case.validates],
        }
        (folder / "splits_final.json").write_text(json.dumps([split]))


def set_network(plans: dict[str, Any], task: Any) -> None:
    """Give nnU-Net's plans a patch, a batch and a network; all else stays.

    Args:
        plans: nnU-Net's; they are changed.
        task: has ``configuration``, ``patch``, ``batch_size`` and ``features``, as a `Task` has.
    """
    configuration = plans["configurations"][task.configuration]
    configuration.update(patch_size=list(task.patch), batch_size=task.batch_size)
    stages = len(task.features)
    axes = len(task.patch)
    configuration["architecture"]["arch_kwargs"].update(
        n_stages=stages,
        features_per_stage=list(task.features),
        kernel_sizes=[[3] * axes] * stages,
        strides=[[1] * axes, *[[2] * axes] * (stages - 1)],
        n_conv_per_stage=[2] * stages,
        n_conv_per_stage_decoder=[2] * (stages - 1),
    )
