"""A data set in nnU-Net's own format, made of real MRI, and nnU-Net's own planning and preprocessing of it."""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
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


def write_raw_dataset(
    folder: Path, cases: Iterable[tuple[str, Sequence[Any], Any]], labels: Sequence[str], suffix: str = ".nii.gz"
) -> None:
    """Write a raw nnU-Net data set: imagesTr, labelsTr and dataset.json, with voxels of 1 mm.

    Args:
        folder: ``DatasetXXX_name`` in nnU-Net's raw folder; it is made.
        cases: (name, the image's channels, the labels) of each; arrays of one shape.
        labels: names of the labels 1, 2 ...
        suffix: of the files.
    """
    import nibabel

    count = channels = 0
    for sub in ("imagesTr", "labelsTr"):
        (folder / sub).mkdir(parents=True, exist_ok=True)
    for count, (name, image, mask) in enumerate(cases, 1):  # noqa: B007
        channels = len(image)
        files = {f"imagesTr/{name}_{n:04d}": channel for n, channel in enumerate(image)} | {f"labelsTr/{name}": mask}
        for place, array in files.items():
            nibabel.save(nibabel.Nifti1Image(np.ascontiguousarray(array), np.eye(4)), folder / f"{place}{suffix}")
    description = {
        "channel_names": {str(channel): "T1" for channel in range(channels)},
        "labels": {name: number for number, name in enumerate(("background", *labels))},
        "numTraining": count,
        "file_ending": suffix,
    }
    write_text(folder / "dataset.json", json.dumps(description, indent=2))


def make_raw_dataset(
    folder: Path,
    dataset_id: int = 1,
    name: str = "MNI152",
    num_cases: int = 5,
    crop_shape: Sequence[int] = (64, 64, 64),
) -> Path:
    """Write a raw nnU-Net data set of crops of the MNI152 template, with grey and white matter as labels 1 and 2.

    Args:
        folder: nnU-Net's raw folder; ``DatasetXXX_name`` is made in it.
        dataset_id: 1 … 999.
        name: what follows the number.
        num_cases: how many crops. nnU-Net's five-fold split wants at least 5. They lie evenly along the diagonal of
            the brain's box and overlap when there are many.
        crop_shape: voxels (D, H, W) of 1 mm, at most (145, 181, 155).

    Returns:
        The data set's folder.

    Raises:
        NotInstalled: nilearn is not.
    """
    template = load_template()

    def crop(case: int) -> tuple[str, list[Any], Any]:
        box = []
        for available, wanted in zip(template.image.shape, crop_shape, strict=True):
            start = int((available - wanted) * (case / max(1, num_cases - 1)))
            box.append(slice(start, start + wanted))
        return f"brain_{case:03d}", [template.image[*box]], template.labels[*box].astype(np.uint8)

    dataset = folder / f"Dataset{dataset_id:03d}_{name}"
    write_raw_dataset(dataset, map(crop, range(num_cases)), ("grey_matter", "white_matter"))
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
