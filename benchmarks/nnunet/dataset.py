"""The data sets that everything is measured on: MRI as large as nnU-Net's users have it, planned and preprocessed by
nnU-Net itself."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from detaug.bench.measuring import in_fresh_process

CASE_SHAPE = (220, 260, 260)  # voxels of 1 mm


@dataclass(frozen=True)
class DatasetKind:
    """One data set.

    Attributes:
        number: nnU-Net's number of it.
        channels: of the images.
        cases: how many; each is the template, mirrored along other axes.
        configurations: what is preprocessed.
    """

    number: int
    channels: int
    cases: int
    configurations: tuple[str, ...]

    @property
    def name(self) -> str:
        """As nnU-Net names it."""
        return f"Dataset{self.number:03d}_MNI152"


ONE_CHANNEL = DatasetKind(1, 1, 5, ("3d_fullres", "2d"))
FOUR_CHANNELS = DatasetKind(2, 4, 3, ("3d_fullres",))


@dataclass(frozen=True)
class Preprocessed:
    """One configuration of a data set, as nnU-Net left it.

    Attributes:
        folder: of its cases.
        plans, dataset_json: nnU-Net's files.
    """

    folder: Path
    plans: dict[str, Any]
    dataset_json: dict[str, Any]

    def label_manager(self) -> Any:
        """nnU-Net's."""
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        return PlansManager(dict(self.plans)).get_label_manager(self.dataset_json)


@contextmanager
def dataset_folder(kept: Path | None) -> Iterator[Path]:
    """Where data sets are made: a folder that is kept for the next run, or a temporary one."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
    else:
        with TemporaryDirectory() as folder:
            yield Path(folder)


def preprocessed(root: Path, kind: DatasetKind, configuration: str) -> Preprocessed:
    """A configuration, which is made first (minutes) where the folder does not have it yet."""
    from detaug.demo.nnunet import nnunet_folders
    from detaug.nnunet.verification.settings import load_plans

    with nnunet_folders(root):
        finished = root / f"{kind.name}.finished"
        if not finished.exists():
            # In a process of its own: preprocessing starts threads, and a process with threads should not be forked.
            in_fresh_process(_make, root, kind)
            finished.touch()
        plans, dataset_json = load_plans(kind.name)
    return Preprocessed(
        root / "preprocessed" / kind.name / f"nnUNetPlans_{configuration}", plans, dataset_json
    )


def _make(root: Path, kind: DatasetKind) -> None:
    from detaug.demo.nnunet import plan_and_preprocess

    logging.disable(logging.WARNING)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    _write_raw(root / "raw" / kind.name, kind)
    plan_and_preprocess(kind.number, kind.configurations)


def _write_raw(folder: Path, kind: DatasetKind) -> None:
    from scipy.ndimage import zoom

    from detaug.demo.mri import load_template
    from detaug.demo.nnunet import write_raw_dataset

    template = load_template()
    factors = [
        wanted / there for wanted, there in zip(CASE_SHAPE, template.image.shape, strict=True)
    ]
    image, labels = (
        zoom(template.image, factors, order=1),
        zoom(template.labels.astype(np.uint8), factors, order=0),
    )

    def made(case: int) -> tuple[str, list[np.ndarray], np.ndarray]:
        mirrored = tuple(axis for axis in range(3) if case >> axis & 1)
        first = np.flip(image, mirrored)
        # further channels: other contrasts of the same tissue
        further = [np.abs(first - channel / 2) for channel in range(1, kind.channels)]
        return f"brain_{case:03d}", [first, *further], np.flip(labels, mirrored)

    write_raw_dataset(folder, map(made, range(kind.cases)), ("grey_matter", "white_matter"), ".nii")
