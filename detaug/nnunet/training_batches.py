"""The batches that an nnU-Net training gets, without the training."""

from __future__ import annotations

import contextlib
import io
import os
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from detaug.augmenter.augmenter import DeterministicAugmenter
from detaug.errors import UnusableError
from detaug.nnunet.compatibility import (
    EXTERNAL_VARIABLE,
    check_nnunet_version,
    external_trainer,
    trainer_folders,
)
from detaug.nnunet.trainers.late_augmenter import LateAugmenter
from detaug.nnunet.verification.settings import Settings, checked, link_predictions, load_plans


def training_batches(settings: Settings) -> tuple[DeterministicAugmenter, Sequence[float], str]:
    """Return the training loader of a trainer, which is not started, and what it is called.

    Returns:
        The trainer's augmenter, without processes; the spacing of its patches in millimetres, along
        their axes; data set, configuration, fold and trainer in words.

    Raises:
        UnusableError: there is no such training, or its batches are not detaug's.
    """
    settings = checked(settings)
    trainer = _trainer_of(settings)
    title = (
        f"{settings.dataset}, {settings.configuration}, fold {settings.fold}, {settings.trainer}"
    )
    return trainer.dataloader_train, tuple(trainer.configuration_manager.spacing), title


def _trainer_of(settings: Settings) -> Any:
    """Return a trainer whose loaders are made and not started.

    Nothing is written to its results.
    """
    try:
        check_nnunet_version()
        # nnU-Net prints its plans, but stdout is for the command's answer.
        with _results_elsewhere(), contextlib.redirect_stdout(io.StringIO()):
            trainer = _new_trainer(settings)
            loaders = trainer.get_dataloaders()
            trainer.dataloader_train, trainer.dataloader_val = loaders
            for loader in loaders:
                _settle(loader, settings.trainer)
    except UnusableError:
        # It is a ValueError, too, but already says what is wrong.
        raise
    except (OSError, RuntimeError, ValueError) as error:
        raise UnusableError(
            f"the loaders of {settings.trainer} cannot be made here: {error}"
        ) from error
    return trainer


def _new_trainer(settings: Settings) -> Any:
    """Return a trainer that knows its cases, seed and batch size, and has no loaders yet."""
    from detaug.nnunet.trainers.mixin import DeterministicTraining

    kind = external_trainer(settings.trainer)
    if not issubclass(kind, DeterministicTraining):
        raise UnusableError(
            f"{settings.trainer} is not a trainer of detaug's: its batches are not reproducible"
        )
    plans, dataset = load_plans(settings.dataset, settings.plans)
    trainer: Any = kind(plans, settings.configuration, settings.fold, dataset, torch.device("cpu"))
    trainer._run_seed = settings.seed
    # Its folder of results vanishes; the links in it lead to what the first stage has predicted.
    previous = trainer.folder_with_segs_from_previous_stage
    if previous is not None:
        trainer.folder_with_segs_from_previous_stage = os.path.realpath(previous)
    # As `initialize` and `on_train_start` do it, without a network.
    trainer._set_batch_size_and_oversample()
    trainer._prepare_cases()
    return trainer


def _settle(loader: Any, trainer: str) -> None:
    """Decide what a loader reads now, where it would be decided with its first batch."""
    if not isinstance(loader, DeterministicAugmenter):
        raise UnusableError(
            f"{trainer} does not load through detaug: it has a {type(loader).__name__}"
        )
    if isinstance(loader, LateAugmenter):
        loader.settle()


@contextlib.contextmanager
def _results_elsewhere() -> Iterator[None]:
    """Send what a trainer writes about itself to a folder that vanishes at the block's end.

    Inside, no ledger is kept, and detaug's trainers are found.
    """
    with tempfile.TemporaryDirectory(prefix="detaug-", ignore_cleanup_errors=True) as results:
        link_predictions(Path(results))
        variables = {
            "nnUNet_results": results,
            EXTERNAL_VARIABLE: trainer_folders(),
            # A preview is no run to be recorded, nor one for a dashboard.
            "DETAUG_LEDGER": "0",
            "nnUNet_wandb_enabled": "0",
            "nnUNet_n_proc_DA": "0",
        }
        with mock.patch.dict(os.environ, variables):
            yield
