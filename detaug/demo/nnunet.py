"""Data sets in nnU-Net's own format, planned and preprocessed by it; and the demo: a training on a
toy data set, straight through, and killed and continued, compared byte for byte.
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

DATASET, CONFIGURATION = "Dataset001_Toy", "3d_fullres"
#: Of the data set and of the trainings.
SEED = 1234
#: Edge of a case, in voxels of 1 mm.
EDGE = 32
#: nnU-Net's five folds want one each, at least.
CASES = 5
#: Features of the network's first stage; nnU-Net's own 32 would take minutes on a CPU.
FEATURES = 4

#: Where nnU-Net looks for its folders. They have to be set before nnunetv2 is imported by versions
#: that read them once.
_FOLDERS = {"nnUNet_raw": "raw", "nnUNet_preprocessed": "preprocessed", "nnUNet_results": "results"}


@contextmanager
def nnunet_folders(root: Path) -> Iterator[Path]:
    """Inside, nnU-Net keeps everything in ``raw``, ``preprocessed`` and ``results`` below a folder;
    afterwards the environment is as it was.
    """
    for folder in _FOLDERS.values():
        (root / folder).mkdir(parents=True, exist_ok=True)
    with mock.patch.dict(
        os.environ, {name: str(root / folder) for name, folder in _FOLDERS.items()}
    ):
        yield root


def write_raw_dataset(
    folder: Path,
    cases: Iterable[tuple[str, Sequence[Any], Any]],
    labels: Sequence[str],
    suffix: str = ".nii.gz",
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
        files = {f"imagesTr/{name}_{n:04d}": channel for n, channel in enumerate(image)} | {
            f"labelsTr/{name}": mask
        }
        for place, array in files.items():
            nibabel.save(
                nibabel.Nifti1Image(np.ascontiguousarray(array), np.eye(4)),
                folder / f"{place}{suffix}",
            )
    description = {
        "channel_names": {str(channel): "T1" for channel in range(channels)},
        "labels": {name: number for number, name in enumerate(("background", *labels))},
        "numTraining": count,
        "file_ending": suffix,
    }
    (folder / "dataset.json").write_text(json.dumps(description, indent=2))


def plan_and_preprocess(
    dataset_id: int = 1, configurations: Sequence[str] = ("3d_fullres",)
) -> None:
    """nnU-Net's fingerprint extraction, experiment planning and preprocessing; nothing of what it
    prints is shown.

    To be called inside `nnunet_folders`, and, as nnU-Net spawns processes, from under ``if __name__
    == "__main__"``.
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
    """Write the raw data set: bright balls in noise, each with its labels; the same files from one
    seed.
    """
    rng = np.random.default_rng(seed)

    def case(number: int) -> tuple[str, list[Any], Any]:
        centre, radius = (
            rng.uniform(EDGE * 0.35, EDGE * 0.65, 3),
            rng.uniform(EDGE * 0.15, EDGE * 0.3),
        )
        grid = np.stack(np.meshgrid(*[np.arange(EDGE)] * 3, indexing="ij"), -1)
        labels = (((grid - centre) ** 2).sum(-1) < radius**2).astype(np.uint8)
        return (
            f"toy_{number:03d}",
            [(labels + rng.normal(0, 0.5, labels.shape)).astype(np.float32)],
            labels,
        )

    write_raw_dataset(dataset, map(case, range(CASES)), ("ball",))


def train_and_compare(root: Path, shown: Progress) -> Trainings:
    """Make the data set, have nnU-Net plan and preprocess it, train, kill, continue, and compare.

    To be called from under ``if __name__ == "__main__"``: nnU-Net spawns processes. `root` is an
    empty folder for its three.

    Raises:
        UnusableError: the first training ended with an error.
    """
    with nnunet_folders(root):
        shown.update(f"making {CASES} cases of {EDGE}³ voxels")
        make_toy_dataset(root / "raw" / DATASET)
        shown.update("nnU-Net plans and preprocesses them", done=1)
        plan_and_preprocess()
        plans = root / "preprocessed" / DATASET / "nnUNetPlans.json"
        planned = json.loads(plans.read_text())
        configuration = planned["configurations"][CONFIGURATION]
        arguments = configuration["architecture"]["arch_kwargs"]
        arguments["features_per_stage"] = [
            FEATURES * 2**stage for stage in range(arguments["n_stages"])
        ]
        configuration["batch_size"] = 2
        plans.write_text(json.dumps(planned))
        shown.done = 2
        short = Settings(DATASET, CONFIGURATION, device="cpu", seed=SEED, iterations=8)
        straight, _, killed = trainings(short)
        return run_and_compare(short, (straight, killed), root, shown)
