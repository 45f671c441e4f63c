"""nnU-Net on a toy data set: trained straight through, trained and killed and continued, and compared byte for byte."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from detaug.demo.nnunet_dataset import nnunet_folders, plan_and_preprocess, write_raw_dataset
from detaug.nnunet.verification.settings import Settings
from detaug.nnunet.verification.verifying import Result, compare_trainings, trainings
from detaug.reports.atomic_files import write_text
from detaug.reports.progress import Progress
from detaug.seeding.tree import Seed

DATASET = "Dataset001_Toy"
CONFIGURATION = "3d_fullres"

#: Edge of a case, in voxels of 1 mm.
EDGE = 32
#: nnU-Net's five folds want one each, at least.
CASES = 5
#: Features of the network's first stage; nnU-Net's own 32 would take minutes on a CPU.
FEATURES = 4


def make_toy_dataset(dataset: Path, seed: Seed) -> None:
    """Write the raw data set: bright balls in noise, each with its labels; the same files from one seed."""
    rng = np.random.default_rng(seed)

    def case(number: int) -> tuple[str, list[Any], Any]:
        centre, radius = rng.uniform(EDGE * 0.35, EDGE * 0.65, 3), rng.uniform(EDGE * 0.15, EDGE * 0.3)
        grid = np.stack(np.meshgrid(*[np.arange(EDGE)] * 3, indexing="ij"), -1)
        labels = (((grid - centre) ** 2).sum(-1) < radius**2).astype(np.uint8)
        return f"toy_{number:03d}", [(labels + rng.normal(0, 0.5, labels.shape)).astype(np.float32)], labels

    write_raw_dataset(dataset, map(case, range(CASES)), ("ball",))


def make_narrow(plans: Path) -> None:
    """Give the planned network few features; nothing else of nnU-Net's plans changes."""
    planned = json.loads(plans.read_text())
    configuration = planned["configurations"][CONFIGURATION]
    arguments = configuration["architecture"]["arch_kwargs"]
    arguments["features_per_stage"] = [FEATURES * 2**stage for stage in range(arguments["n_stages"])]
    configuration["batch_size"] = 2
    write_text(plans, json.dumps(planned, indent=2))


def settings(seed: Seed) -> Settings:
    """Of both trainings: two short epochs on the CPU."""
    return Settings(DATASET, CONFIGURATION, device="cpu", seed=seed, iterations=8)


def train_and_compare(root: Path, seed: Seed, shown: Progress) -> Result:
    """Make the data set, have nnU-Net plan and preprocess it, train, kill, continue, and compare.

    To be called from under ``if __name__ == "__main__"``: nnU-Net spawns processes. `root` is an empty folder for its three.

    Raises:
        TrainingFailed: the first training ended with an error.
    """
    with nnunet_folders(root):
        shown.update(f"making {CASES} cases of {EDGE}³ voxels")
        make_toy_dataset(root / "raw" / DATASET, seed)
        shown.update("nnU-Net plans and preprocesses them", done=1)
        plan_and_preprocess(1, (CONFIGURATION,))
        make_narrow(root / "preprocessed" / DATASET / "nnUNetPlans.json")
        shown.done = 2
        short = settings(seed)
        straight, _, killed = trainings(short)
        return compare_trainings(short, (straight, killed), root, shown)
