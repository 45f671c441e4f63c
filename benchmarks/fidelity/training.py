"""One training of the study, in a process of its own: nnU-Net's trainer or detaug's, and the final validation that nnU-Net
does itself."""

from __future__ import annotations

import json
import multiprocessing
import multiprocessing.pool
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from benchmarks.command import silence
from benchmarks.fidelity.tasks import Task, make_small

STOCK, DETAUG = "nnUNetTrainer", "nnUNetTrainerDetAug"
ARMS = (STOCK, DETAUG)


def train(root: Path, task: Task, arm: str, run: int) -> dict[str, Any]:
    """Train on one core and validate.

    Args:
        root: has nnU-Net's ``raw`` and ``preprocessed`` (`tasks.prepare`).
        task: what to train.
        arm: of `ARMS`.
        run: the seed of detaug's; nnU-Net's trainer has none.

    Returns:
        ``dice``, the mean over the labels of nnU-Net's final validation, ``labels`` with each one's, and ``cpu_seconds``.
    """
    silence()
    with TemporaryDirectory() as results:
        os.environ.update(
            nnUNet_raw=str(root / "raw"),
            nnUNet_preprocessed=str(root / "preprocessed"),
            nnUNet_results=results,
            nnUNet_n_proc_DA="0",
            nnUNet_def_n_proc="1",
            nnUNet_compile="False",
            OMP_NUM_THREADS="1",
            DETAUG_SEED=str(run),
            DETAUG_CPU_THREADS="1",
        )
        trainer = _trainer(task, arm)
        trainer.run_training()
        trainer.inference_allowed_mirroring_axes = (
            None  # predicting every patch in all mirrorings would take most of the time
        )
        with _threads_for_processes():
            trainer.perform_actual_validation()
        summary = json.loads(
            (Path(trainer.output_folder) / "validation" / "summary.json").read_text()
        )
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "dice": summary["foreground_mean"]["Dice"],
        "labels": {
            name: summary["mean"][str(number)]["Dice"] for number, name in enumerate(task.labels, 1)
        },
        "cpu_seconds": round(sum(each.ru_utime + each.ru_stime for each in used), 1),
    }  # fmt: skip


@contextmanager
def _threads_for_processes() -> Iterator[None]:
    """nnU-Net validates with two processes, which import torch and nnU-Net for seconds, for a few small images."""
    get_context = multiprocessing.get_context
    threads = SimpleNamespace(Pool=multiprocessing.pool.ThreadPool)
    multiprocessing.get_context = lambda _method=None: threads  # type: ignore[assignment, misc]
    try:
        yield
    finally:
        multiprocessing.get_context = get_context


def _trainer(task: Task, arm: str) -> Any:
    """As ``nnUNetv2_train`` makes it."""
    import torch

    from detaug.nnunet.compatibility import external_trainer, plot_nothing
    from detaug.nnunet.verification.settings import load_plans

    torch.set_num_threads(1)
    plans, dataset_json = load_plans(task.dataset)
    make_small(plans, task)
    made = external_trainer(arm)(plans, task.configuration, 0, dataset_json, torch.device("cpu"))
    made.num_epochs = task.epochs
    made.num_iterations_per_epoch = task.iterations
    made.num_val_iterations_per_epoch = task.validation_iterations
    made.disable_checkpointing = True
    plot_nothing(made)
    return made
