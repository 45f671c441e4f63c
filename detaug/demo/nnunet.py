"""The nnU-Net demo: a training on a toy data set, killed and resumed, equals one straight through.

The data sets are in nnU-Net's own format, and nnU-Net plans and preprocesses them.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from detaug.nnunet.compatibility import planning
from detaug.nnunet.verification.settings import Settings
from detaug.nnunet.verification.verifying import Trainings, run_and_compare, trainings
from detaug.system.progress import Progress

DATASET = "Dataset001_Toy"
CONFIGURATION = "3d_fullres"
#: Of the data set and of the trainings.
SEED = 1234
#: Edge of a case, in voxels of 1 mm.
EDGE = 32
#: Number of cases: each of nnU-Net's five folds needs one.
CASES = 5
#: Features of the network's first stage; nnU-Net's own 32 would take minutes on a CPU.
FEATURES = 4

#: Where nnU-Net looks for its folders. They have to be set before nnunetv2 is imported by versions
#: that read them once.
_FOLDERS = {"nnUNet_raw": "raw", "nnUNet_preprocessed": "preprocessed", "nnUNet_results": "results"}


@contextmanager
def nnunet_folders(root: Path) -> Iterator[Path]:
    """Set nnU-Net's three folders below `root`, inside the block.

    ``raw``, ``preprocessed`` and ``results`` are created. The environment is restored at the end.
    """
    variables = {}
    for name, folder in _FOLDERS.items():
        path = root / folder
        path.mkdir(parents=True, exist_ok=True)
        variables[name] = str(path)
    with mock.patch.dict(os.environ, variables):
        yield root


def write_raw_dataset(
    folder: Path,
    cases: Iterable[tuple[str, Sequence[Any], Any]],
    labels: Sequence[str],
    suffix: str = ".nii.gz",
) -> None:
    """Write a raw nnU-Net data set: imagesTr, labelsTr and dataset.json, with voxels of 1 mm.

    Args:
        folder: ``DatasetXXX_name`` in nnU-Net's raw folder; it is created.
        cases: (name, the image's channels, the labels) of each; arrays of one shape (X, Y, Z).
        labels: names of the labels 1, 2 ...
        suffix: of the image files.
    """
    import nibabel

    for subfolder in ("imagesTr", "labelsTr"):
        (folder / subfolder).mkdir(parents=True, exist_ok=True)
    num_cases = 0
    num_channels = 0
    for name, image, mask in cases:
        num_cases += 1
        num_channels = len(image)
        files = {f"imagesTr/{name}_{index:04d}": channel for index, channel in enumerate(image)}
        files[f"labelsTr/{name}"] = mask
        for path, array in files.items():
            # The identity means voxels of 1 mm in every case, so that nnU-Net resamples nothing.
            nifti = nibabel.Nifti1Image(np.ascontiguousarray(array), np.eye(4))
            nibabel.save(nifti, folder / f"{path}{suffix}")
    label_names = ("background", *labels)
    description = {
        "channel_names": {str(channel): "T1" for channel in range(num_channels)},
        "labels": {name: value for value, name in enumerate(label_names)},
        "numTraining": num_cases,
        "file_ending": suffix,
    }
    (folder / "dataset.json").write_text(json.dumps(description, indent=2))


def plan_and_preprocess(
    dataset_id: int = 1, configurations: Sequence[str] = ("3d_fullres",)
) -> None:
    """Run nnU-Net's fingerprint extraction, planning and preprocessing, without its output.

    Call it inside `nnunet_folders`, and below ``if __name__ == "__main__"``: nnU-Net spawns
    processes.

    Args:
        dataset_id: the number in the data set's name.
        configurations: to preprocess for.
    """
    nnunet = planning()
    with redirect_stdout(io.StringIO()):
        nnunet.extract_fingerprints(
            [dataset_id], num_processes=1, verbose=False, show_progress_bar=False
        )
        plans = nnunet.plan_experiments([dataset_id])
        nnunet.preprocess(
            [dataset_id],
            plans,
            tuple(configurations),
            [1] * len(configurations),
            show_progress_bar=False,
        )


def make_toy_dataset(dataset: Path, seed: int = SEED) -> None:
    """Write a raw data set of bright balls in noise; one seed gives the same files.

    Args:
        dataset: its folder.
        seed: of the balls and the noise.
    """
    rng = np.random.default_rng(seed)
    cases = (_toy_case(index, rng) for index in range(CASES))
    write_raw_dataset(dataset, cases, ("ball",))


def _toy_case(index: int, rng: np.random.Generator) -> tuple[str, list[Any], Any]:
    """Return name, channels and labels of one ball in noise; arrays of `EDGE` voxels an axis."""
    # In this order: each draw takes the generator's next numbers.
    centre = rng.uniform(EDGE * 0.35, EDGE * 0.65, 3)
    radius = rng.uniform(EDGE * 0.15, EDGE * 0.3)
    axes = [np.arange(EDGE)] * 3
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), -1)
    labels = (((grid - centre) ** 2).sum(-1) < radius**2).astype(np.uint8)
    noise = rng.normal(0, 0.5, labels.shape)
    image = (labels + noise).astype(np.float32)
    return f"toy_{index:03d}", [image], labels


def train_and_compare(root: Path, bar: Progress) -> Trainings:
    """Make the data set, have nnU-Net preprocess it, train, kill, resume, and compare.

    Call it below ``if __name__ == "__main__"``: nnU-Net spawns processes.

    Args:
        root: an empty folder for nnU-Net's three.
        bar: is updated.

    Raises:
        UnusableError: the first training ended with an error.
    """
    with nnunet_folders(root):
        bar.update(f"making {CASES} cases of {EDGE}³ voxels")
        make_toy_dataset(root / "raw" / DATASET)
        bar.update("nnU-Net plans and preprocesses them", done=1)
        plan_and_preprocess()
        # nnU-Net's own plan is for a GPU: network and batch are made small, all else stays.
        _shrink_plans(root / "preprocessed" / DATASET / "nnUNetPlans.json")
        bar.done = 2
        settings = Settings(DATASET, CONFIGURATION, device="cpu", seed=SEED, iterations=8)
        # The second uninterrupted training is left out: these two show that a kill does not matter.
        straight, _, killed = trainings(settings)
        return run_and_compare(settings, (straight, killed), root, bar)


def _shrink_plans(file: Path) -> None:
    """Give nnU-Net's plans a network with few features and small batches, for a CPU."""
    plans = json.loads(file.read_text())
    configuration = plans["configurations"][CONFIGURATION]
    arguments = configuration["architecture"]["arch_kwargs"]
    num_stages = arguments["n_stages"]
    arguments["features_per_stage"] = [FEATURES * 2**stage for stage in range(num_stages)]
    configuration["batch_size"] = 2
    file.write_text(json.dumps(plans))
