"""nnU-Net's own trainer, in which only the import of the augmenters is changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from nnunetv2.training.nnUNetTrainer import nnUNetTrainer as module

from detaug import batchgenerators
from tests.peers.nnunet.trainers.in_process import initialized
from tests.support.comparing import fingerprints_of, take
from tests.support.processes import own_processes, wait_until


@pytest.fixture
def one_import_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nnU-Net's module of the trainer have detaug's augmenters."""
    for name in batchgenerators.__all__:
        monkeypatch.setattr(module, name, getattr(batchgenerators, name))


def first_batches(root: Path) -> list[str]:
    """Return fingerprints of two batches for training and of two for validation."""
    trainer = initialized(root, module.nnUNetTrainer)
    train, validation = trainer.get_dataloaders()
    fingerprints = fingerprints_of(take(train, 2)) + fingerprints_of(take(validation, 2))
    train._finish()
    validation._finish()
    return fingerprints


@pytest.mark.usefixtures("one_import_changed")
def test_stock_trainers_batches_do_not_depend_on_workers(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("nnUNet_n_proc_DA", "2")
    with_two_workers = first_batches(nnunet_environment)
    monkeypatch.setenv("nnUNet_n_proc_DA", "3")
    assert first_batches(nnunet_environment) == with_two_workers


def no_process_is_left() -> bool:
    """Return whether all processes that the test has started have ended."""
    return not own_processes()


@pytest.mark.usefixtures("one_import_changed")
def test_stock_trainer_ends_the_workers_on_train_end(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("nnUNet_n_proc_DA", "2")
    trainer = initialized(nnunet_environment, module.nnUNetTrainer)
    trainer.dataloader_train, trainer.dataloader_val = trainer.get_dataloaders()
    assert isinstance(trainer.dataloader_train, batchgenerators.NonDetMultiThreadedAugmenter)
    assert own_processes()
    trainer.on_train_end()
    wait_until(no_process_is_left, "the workers have ended")
