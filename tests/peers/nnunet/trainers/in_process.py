"""Make nnU-Net's trainers in this process, as nnU-Net's command line makes them."""

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
    """A trainer of two epochs of two batches.

    It makes no plots and no final validation, which take longer than all the rest.
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
        """Do nothing."""


class ShortDetAug(DetAugLoading, Short):
    """A short trainer with detaug's reading and augmentation of cases."""


class ShortDeterministic(DeterministicTraining, Short):
    """A short trainer with nnU-Net's own loader and transforms, made reproducible."""


def new_trainer(
    root: Path,
    trainer: type,
    configuration: str = "3d_fullres",
    fold: Any = 0,
    kind: str = "plain",
    device: Any = CPU,
    continued: bool = False,
) -> Any:
    """Return a trainer whose results folder is that of the environment.

    Args:
        root: folder with nnU-Net's ``preprocessed``.
        trainer: its class.
        configuration: nnU-Net's name.
        fold: nnU-Net's.
        kind: of data set.
        device: of the network.
        continued: whether the command line has ``--c``.
    """
    folder = root / "preprocessed" / KINDS[kind].name
    plans = json.loads((folder / "nnUNetPlans.json").read_text())
    plans["continue_training"] = continued
    dataset = json.loads((folder / "dataset.json").read_text())
    return trainer(plans, configuration, fold, dataset, device)


def initialized(root: Path, trainer: type, **options: Any) -> Any:
    """Return a `new_trainer` that has its network."""
    result = new_trainer(root, trainer, **options)
    result.initialize()
    return result


def every_trainer() -> dict[str, type[nnUNetTrainer]]:
    """Return all trainers of nnU-Net that can be imported here, by name."""
    kinds: dict[str, type[nnUNetTrainer]] = {}
    for module in pkgutil.walk_packages(trainers.__path__, f"{trainers.__name__}."):
        # Some trainers need an optimiser that is not installed.
        with contextlib.suppress(ImportError):
            for name, value in vars(importlib.import_module(module.name)).items():
                if is_trainer_of(module.name, value):
                    kinds[name] = value
    return kinds


def is_trainer_of(module: str, value: Any) -> bool:
    """Return whether a value is a trainer class that a module defines."""
    if not isinstance(value, type) or not issubclass(value, nnUNetTrainer):
        return False
    return value.__module__ == module
