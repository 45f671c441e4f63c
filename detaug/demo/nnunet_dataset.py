"""A data set in nnU-Net's own format, and nnU-Net's own planning and preprocessing of it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from detaug.nnunet.compatibility import planning, variables
from detaug.nnunet.verification.settings import load_plans as load_plans
from detaug.reports.atomic_files import write_text

#: Where nnU-Net looks for its folders. They have to be set before nnunetv2 is imported by versions that read them once.
_FOLDERS = {"nnUNet_raw": "raw", "nnUNet_preprocessed": "preprocessed", "nnUNet_results": "results"}


@contextmanager
def nnunet_folders(root: Path) -> Iterator[Path]:
    """Inside, nnU-Net keeps everything in ``raw``, ``preprocessed`` and ``results`` below an existing folder; afterwards the
    environment is as it was."""
    for folder in _FOLDERS.values():
        (root / folder).mkdir(exist_ok=True)
    with variables(**{name: str(root / folder) for name, folder in _FOLDERS.items()}):
        yield root


def write_raw_dataset(
    folder: Path, cases: Iterable[tuple[str, Sequence[Any], Any]], labels: Sequence[str], suffix: str = ".nii.gz"
) -> None:
    """Write a raw nnU-Net data set: imagesTr, labelsTr and dataset.json, with voxels of 1 mm.

    Args:
        folder: ``DatasetXXX_name`` in nnU-Net's raw folder; it is made.
        cases: (name, the image's channels, the labels) of each; arrays of one shape.
        labels: names of the labels 1, 2 ...
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


def plan_and_preprocess(dataset_id: int = 1, configurations: Sequence[str] = ("3d_fullres",)) -> None:
    """nnU-Net's fingerprint extraction, experiment planning and preprocessing; nothing of what it prints is shown.

    To be called inside `nnunet_folders`, and, as nnU-Net spawns processes, from under ``if __name__ == "__main__"``.
    """
    nnunet = planning()
    with redirect_stdout(io.StringIO()):
        nnunet.extract_fingerprints([dataset_id], num_processes=1, verbose=False, show_progress_bar=False)
        plans = nnunet.plan_experiments([dataset_id])
        nnunet.preprocess(
            [dataset_id], plans, tuple(configurations), [1] * len(configurations), show_progress_bar=False
        )
