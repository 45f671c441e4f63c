"""One training of the study: nnU-Net's trainer or detaug's, and nnU-Net's own final validation."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.pool
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch

from benchmarks.fidelity.tasks import Task, set_network
from benchmarks.forks import seed_from_system
from detaug.nnunet.compatibility import external_trainer, plot_nothing, trainer_folders
from detaug.nnunet.verification.settings import load_plans
from detaug.tools.bench.timing import tree_cpu_seconds

STOCK = "nnUNetTrainer"
DETAUG = "nnUNetTrainerDetAug"

#: A variant that is compared with `DETAUG` seed by seed: nnU-Net's own, without mirroring.
VARIANT = "nnUNetTrainerDetAugNoMirroring"

ARMS = (STOCK, DETAUG, VARIANT)


def train(root: Path, task: Task, arm: str, run: int) -> dict[str, Any]:
    """Train on one core and validate.

    Args:
        root: has nnU-Net's ``raw`` and ``preprocessed`` (`tasks.prepare`).
        task: what to train.
        arm: of `ARMS`.
        run: the seed of detaug's trainers; nnU-Net's trainer has none.

    Returns:
        ``dice``, the mean over the labels, ``labels`` with each one's, and ``cpu_seconds``.
    """
    # Errors reach the caller anyway.
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(nowhere, stream)
    with TemporaryDirectory() as results:
        os.environ.update(
            nnUNet_raw=str(root / "raw"),
            nnUNet_preprocessed=str(root / "preprocessed"),
            nnUNet_results=results,
            nnUNet_extTrainer=trainer_folders(),
            nnUNet_n_proc_DA="0",
            nnUNet_def_n_proc="1",
            nnUNet_compile="False",
            # One core, so that trainings on another machine sum in the same order.
            OMP_NUM_THREADS="1",
            DETAUG_SEED=str(run),
            DETAUG_CPU_THREADS="1",
        )
        trainer = _trainer(task, arm)
        trainer.run_training()
        # Predicting every patch in all mirrorings would take most of the time.
        trainer.inference_allowed_mirroring_axes = None
        # In threads: nnU-Net's processes would import torch for seconds each.
        threads = SimpleNamespace(Pool=multiprocessing.pool.ThreadPool)
        with mock.patch.object(multiprocessing, "get_context", return_value=threads):
            trainer.perform_actual_validation()
        summary = json.loads(
            (Path(trainer.output_folder) / "validation" / "summary.json").read_text()
        )
    return {
        "dice": summary["foreground_mean"]["Dice"],
        "labels": {
            name: summary["mean"][str(number)]["Dice"] for number, name in enumerate(task.labels, 1)
        },
        "cpu_seconds": round(tree_cpu_seconds(os.getpid()), 1),
    }


def _trainer(task: Task, arm: str) -> Any:
    """Return the trainer that ``nnUNetv2_train`` would make, for a short training."""
    torch.set_num_threads(1)
    seed_from_system()
    plans, dataset_json = load_plans(task.dataset)
    set_network(plans, task)
    cpu = torch.device("cpu")
    trainer = external_trainer(arm)(plans, task.configuration, 0, dataset_json, cpu)
    trainer.num_epochs = task.epochs
    trainer.num_iterations_per_epoch = task.iterations
    trainer.num_val_iterations_per_epoch = task.validation_iterations
    trainer.disable_checkpointing = True
    plot_nothing(trainer)
    return trainer
