"""nnU-Net's trainers made in this process, as its command line makes them."""

from __future__ import annotations

import contextlib
import importlib
import json
import pkgutil
from pathlib import Path
from typing import Any

import torch
from nnunetv2.training import nnUNetTrainer as trainers
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from detaug.nnunet import DetAugLoading, DeterministicTraining
from detaug.nnunet.compatibility import plot_nothing
from tests.peers.nnunet.trainers.small_datasets import KINDS

CPU = torch.device("cpu")


class Short(nnUNetTrainer):
    """Two epochs of two batches, without plots and the final validation, which take longer than all
    the rest.
    """

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        super().__init__(plans, configuration, fold, dataset_json, device)
        self.num_epochs = 2
        self.num_iterations_per_epoch = 2
        self.num_val_iterations_per_epoch = 1
        self.save_every = 1

    def initialize(self) -> None:
        plot_nothing(self)
        super().initialize()

    def perform_actual_validation(self, save_probabilities: bool = False) -> None:
        pass


class ShortDetAug(DetAugLoading, Short):
    pass


class ShortDeterministic(DeterministicTraining, Short):
    pass


def new_trainer(
    root: Path,
    trainer: type,
    configuration: str = "3d_fullres",
    fold: Any = 0,
    kind: str = "plain",
    device: Any = CPU,
    continued: bool = False,
) -> Any:
    """A trainer whose folders are those of the environment; `continued` as for ``--c``."""
    folder = root / "preprocessed" / KINDS[kind].name
    plans = json.loads((folder / "nnUNetPlans.json").read_text())
    plans["continue_training"] = continued
    return trainer(
        plans, configuration, fold, json.loads((folder / "dataset.json").read_text()), device
    )


def initialized(root: Path, trainer: type, **options: Any) -> Any:
    """The same, with its network."""
    made = new_trainer(root, trainer, **options)
    made.initialize()
    return made


def every_trainer() -> dict[str, type[nnUNetTrainer]]:
    """All trainers that nnU-Net comes with and that can be imported here, by name."""
    found = {}
    for module in pkgutil.walk_packages(trainers.__path__, f"{trainers.__name__}."):
        with contextlib.suppress(ImportError):  # an optimiser that is not installed
            for name, each in vars(importlib.import_module(module.name)).items():
                if (
                    isinstance(each, type)
                    and issubclass(each, nnUNetTrainer)
                    and each.__module__ == module.name
                ):
                    found[name] = each
    return found
