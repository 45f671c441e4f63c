"""The batches of a training of nnU-Net's, without the training: for `detaug preview --nnunet`."""

from __future__ import annotations

import os
import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from detaug.engine.augmenter import DeterministicAugmenter
from detaug.nnunet.compatibility import check_nnunet_version, make_trainer
from detaug.nnunet.verification.run import environment
from detaug.nnunet.verification.settings import Part, Settings
from detaug.nnunet.verification.verifying import link_predictions
from detaug.nnunet.verification.wrong_use import CannotVerify, checked


@dataclass(frozen=True)
class TrainingBatches:
    """What a training gets.

    Attributes:
        augmenter: the trainer's, without processes.
        spacing: lengths of a voxel's edges in millimetres, along a patch's axes.
        title: data set, configuration, fold and trainer.
    """

    augmenter: DeterministicAugmenter
    spacing: Sequence[float]
    title: str


@contextmanager
def _quiet() -> Iterator[None]:
    """What the libraries that nnU-Net imports will change one day is no business of someone who looks at pictures."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        yield


@contextmanager
def training_batches(settings: Settings) -> Iterator[TrainingBatches]:
    """Inside, a training's batches can be made. It is initialised as `nnUNetv2_train` does it, in a folder of its own.

    Raises:
        CannotVerify: there is no such data set, configuration, fold, trainer or plans, or the trainer is none of detaug's.
    """
    import torch

    settings = checked(settings)
    check_nnunet_version()
    before = dict(os.environ)
    try:
        with tempfile.TemporaryDirectory(prefix="detaug-preview-") as results, redirect_stdout(StringIO()), _quiet():
            os.environ.update(environment(Part(settings, results, 0)))
            link_predictions(settings, Path(results))
            asked = (settings.dataset, settings.configuration, settings.fold, settings.trainer, settings.plans)
            try:
                trainer: Any = make_trainer(*asked, torch.device(settings.device))
            except LookupError:
                folders = os.environ["nnUNet_extTrainer"]
                raise CannotVerify(
                    f"there is no trainer {settings.trainer!r}, neither nnU-Net's own nor in nnUNet_extTrainer={folders}"
                ) from None
            if not hasattr(trainer, "run_seed"):
                raise CannotVerify(
                    f"the batches of {settings.trainer} are not reproducible, so there is nothing to be previewed: take "
                    "nnUNetTrainerDetAug, nnUNetTrainerDeterministic, or a trainer of your own with one of their mixins"
                )
            trainer.initialize()
            train, val = trainer.get_dataloaders()
            train.settle()
            try:
                title = f"{settings.dataset}, {settings.configuration}, fold {settings.fold}, {settings.trainer}"
                yield TrainingBatches(train, tuple(trainer.configuration_manager.spacing), title)
            finally:
                train.close()
                val.close()
    finally:
        os.environ.clear()
        os.environ.update(before)
