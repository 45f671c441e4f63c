"""A trainer of nnU-Net's with its network, for single steps without a training around them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu.dataset import DATASET, Plan
from benchmarks.gpu.trainings import SEED, trainer_class


def make_trainer(name: str, plan: Plan, device: str, workers: int = 0) -> Any:
    """Return a trainer as ``nnUNetv2_train`` makes it, initialised and not compiled.

    The data set's folders must be in use (`use_folders`).
    """
    os.environ.update(
        nnUNet_compile="False",
        nnUNet_n_proc_DA=str(workers),
        nnUNet_wandb_enabled="0",
        DETAUG_SEED=SEED,
        DETAUG_CPU_THREADS="1",
    )
    settle()
    folder = Path(os.environ["nnUNet_preprocessed"], DATASET)
    plans = json.loads((folder / "nnUNetPlans.json").read_text())
    # ``nnUNetv2_train`` writes it into the plans.
    plans["continue_training"] = False
    description = json.loads((folder / "dataset.json").read_text())
    kind = trainer_class(name)
    trainer = kind(plans, plan.configuration, 0, description, torch.device(device))
    trainer.initialize()
    trainer.set_deep_supervision_enabled(True)
    return trainer


def random_batch(trainer: Any, plan: Plan) -> dict[str, Any]:
    """Return a batch as the trainer's loader gives them: one target for each deep output."""
    generator = torch.Generator().manual_seed(0)
    data = torch.randn((plan.batch_size, 1, *plan.patch), generator=generator)
    labels = (data > 0.5).to(torch.int16)
    targets = []
    for scales in trainer._get_deep_supervision_scales():
        steps = [slice(None, None, round(1 / scale)) for scale in scales]
        targets.append(labels[(slice(None), slice(None), *steps)].contiguous())
    return {"data": data, "target": targets}


def settle() -> None:
    """Give torch one thread, as ``nnUNetv2_train`` does on a GPU."""
    torch.set_num_threads(1)


def synchronise(device: str) -> None:
    """Wait until the GPU has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
