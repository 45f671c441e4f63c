"""The data set that nnU-Net's rows are measured on.

It is MRI as large as nnU-Net's users have it, planned and preprocessed by nnU-Net itself.
"""

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

from detaug.demo.mri import load_template
from detaug.demo.nnunet import nnunet_folders, plan_and_preprocess, write_raw_dataset
from detaug.nnunet.verification.settings import load_plans
from detaug.tools.bench.timing import in_fresh_process

NUMBER = 1
NAME = f"Dataset{NUMBER:03d}_MNI152"
CASES = 5
#: Voxels of 1 mm.
CASE_SHAPE = (220, 260, 260)
CONFIGURATIONS = ("3d_fullres", "2d")


@dataclass(frozen=True)
class Preprocessed:
    """One configuration of the data set, as nnU-Net left it.

    Attributes:
        folder: of its cases.
        plans, dataset_json: nnU-Net's files.
    """

    folder: Path
    plans: dict[str, Any]
    dataset_json: dict[str, Any]

    def label_manager(self) -> Any:
        """Return nnU-Net's own."""
        from nnunetv2.utilities.plans_handling.plans_handler import PlansManager

        return PlansManager(dict(self.plans)).get_label_manager(self.dataset_json)


@contextmanager
def dataset_folder(kept: Path | None) -> Iterator[Path]:
    """Give the folder that is kept for the next run, or a temporary one."""
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with TemporaryDirectory() as folder:
        yield Path(folder)


def preprocessed(root: Path, configuration: str) -> Preprocessed:
    """Return a configuration; if the folder does not have it yet, it is made first (minutes)."""
    with nnunet_folders(root):
        finished = root / f"{NAME}.finished"
        if not finished.exists():
            # Preprocessing starts threads, and a process with threads should not be forked.
            in_fresh_process(_make, root)
            finished.touch()
        plans, dataset_json = load_plans(NAME)
    folder = root / "preprocessed" / NAME / f"nnUNetPlans_{configuration}"
    return Preprocessed(folder, plans, dataset_json)


def _make(root: Path) -> None:
    logging.disable(logging.WARNING)
    # nnU-Net preprocesses in processes, each with threads of its own otherwise.
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    labels = ("grey_matter", "white_matter")
    write_raw_dataset(root / "raw" / NAME, _cases(), labels, ".nii")
    plan_and_preprocess(NUMBER, CONFIGURATIONS)


def _cases() -> Iterator[tuple[str, list[np.ndarray], np.ndarray]]:
    """Yield name, channels and labels of the MNI152 template, mirrored along other axes each."""
    image, labels = template_of_shape(CASE_SHAPE)
    for case in range(CASES):
        axes = tuple(axis for axis in range(3) if case >> axis & 1)
        yield f"brain_{case:03d}", [np.flip(image, axes)], np.flip(labels, axes)


def template_of_shape(shape: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Return image and labels of the template, zoomed; its middle slice for two axes."""
    from scipy.ndimage import zoom

    template = load_template()
    image = template.image
    labels = template.labels.astype(np.uint8)
    if len(shape) == 2:
        middle = image.shape[2] // 2
        image = image[:, :, middle]
        labels = labels[:, :, middle]
    factors = np.divide(shape, image.shape)
    return zoom(image, factors, order=1), zoom(labels, factors, order=0)
