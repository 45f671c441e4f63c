"""A data set in nnU-Net's own format, made of real MRI, and nnU-Net's own planning and preprocessing of it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from detaug.demo.mri import load_template
from detaug.reports.atomic_files import write_text

#: Where nnU-Net looks for its folders. They have to be set before nnunetv2 is imported by versions that read them once.
_FOLDERS = {"nnUNet_raw": "raw", "nnUNet_preprocessed": "preprocessed", "nnUNet_results": "results"}


@contextmanager
def nnunet_folders(root: Path) -> Iterator[Path]:
    """Inside, nnU-Net keeps everything below `root`; afterwards the environment is as it was.

    Args:
        root: an existing folder; ``raw``, ``preprocessed`` and ``results`` are made in it.
    """
    before = {name: os.environ.get(name) for name in _FOLDERS}
    for name, folder in _FOLDERS.items():
        (root / folder).mkdir(exist_ok=True)
        os.environ[name] = str(root / folder)
    try:
        yield root
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def make_raw_dataset(
    folder: Path,
    dataset_id: int = 1,
    name: str = "MNI152",
    num_cases: int = 5,
    crop_shape: Sequence[int] = (64, 64, 64),
) -> Path:
    """Write a raw nnU-Net data set of crops of the MNI152 template.

    Args:
        folder: nnU-Net's raw folder; ``DatasetXXX_name`` is made in it.
        dataset_id: 1 … 999.
        name: what follows the number.
        num_cases: how many crops. nnU-Net's five-fold split wants at least 5. They lie evenly along the diagonal of
            the brain's box and overlap when there are many.
        crop_shape: voxels (D, H, W) of 1 mm, at most (145, 181, 155).

    Returns:
        The data set's folder, with imagesTr, labelsTr (0 background, 1 grey matter, 2 white matter) and dataset.json.

    Raises:
        ValueError: a number out of range.
        ModuleNotFoundError: nilearn is not installed.
    """
    import nibabel

    template = load_template()
    room = [available - wanted for available, wanted in zip(template.image.shape, crop_shape, strict=True)]
    if min(room) < 0 or min(crop_shape) < 1:
        raise ValueError(f"crop_shape must lie within {template.image.shape}, got {tuple(crop_shape)}")
    if not 1 <= dataset_id <= 999:
        raise ValueError(f"dataset_id must be in 1 ... 999, got {dataset_id}")
    if num_cases < 1:
        raise ValueError(f"num_cases must be at least 1, got {num_cases}")

    dataset = folder / f"Dataset{dataset_id:03d}_{name}"
    (dataset / "imagesTr").mkdir(parents=True)
    (dataset / "labelsTr").mkdir()
    affine = np.eye(4)
    for case in range(num_cases):
        part = case / max(1, num_cases - 1)
        corner = [int(extent * part) for extent in room]
        box = tuple(slice(start, start + size) for start, size in zip(corner, crop_shape, strict=True))
        image = nibabel.Nifti1Image(template.image[box], affine)
        labels = nibabel.Nifti1Image(template.labels[box].astype(np.uint8), affine)
        nibabel.save(image, dataset / "imagesTr" / f"brain_{case:03d}_0000.nii.gz")
        nibabel.save(labels, dataset / "labelsTr" / f"brain_{case:03d}.nii.gz")

    description = {
        "channel_names": {"0": "T1"},
        "labels": {"background": 0, "grey_matter": 1, "white_matter": 2},
        "numTraining": num_cases,
        "file_ending": ".nii.gz",
    }
    write_text(dataset / "dataset.json", json.dumps(description, indent=2))
    return dataset


def plan_and_preprocess(
    dataset_id: int = 1, configurations: Sequence[str] = ("3d_fullres",), num_processes: int = 1, quiet: bool = True
) -> None:
    """nnU-Net's fingerprint extraction, experiment planning and preprocessing, as ``nnUNetv2_plan_and_preprocess``.

    To be called inside `nnunet_folders`, and, as nnU-Net spawns processes, from under ``if __name__ == "__main__"``.

    Args:
        dataset_id: that of `make_raw_dataset`.
        configurations: of "2d", "3d_fullres", "3d_lowres".
        num_processes: nnU-Net's worker processes.
        quiet: keep the pages that nnU-Net prints about its plans to ourselves.
    """
    from detaug.nnunet.compatibility import planning

    nnunet = planning()
    with redirect_stdout(io.StringIO()) if quiet else nullcontext():
        extract, preprocess = nnunet.extract_fingerprints, nnunet.preprocess
        extract([dataset_id], num_processes=num_processes, verbose=False, show_progress_bar=False)
        plans = nnunet.plan_experiments([dataset_id])
        preprocess([dataset_id], plans, tuple(configurations), [num_processes], show_progress_bar=False)


def load_plans(dataset_name: str, plans_identifier: str = "nnUNetPlans") -> tuple[dict[str, Any], dict[str, Any]]:
    """Plans and dataset.json of a preprocessed data set, as nnU-Net's command line hands them to a trainer.

    Args:
        dataset_name: such as "Dataset001_MNI152".
        plans_identifier: which plans.

    Returns:
        (plans, dataset.json). Plans hold `continue_training`, which the trainer removes: load them again for
        each trainer.
    """
    folder = Path(os.environ["nnUNet_preprocessed"]) / dataset_name
    plans: dict[str, Any] = json.loads((folder / f"{plans_identifier}.json").read_text())
    plans["continue_training"] = False
    dataset_json: dict[str, Any] = json.loads((folder / "dataset.json").read_text())
    return plans, dataset_json
