"""nnU-Net's own trainer with its augmenters' imports changed, and nothing else."""

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
    for name in batchgenerators.__all__:
        monkeypatch.setattr(module, name, getattr(batchgenerators, name))


def first_batches(root: Path) -> list[str]:
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
    runs = []
    for number in ("2", "3"):
        monkeypatch.setenv("nnUNet_n_proc_DA", number)
        runs.append(first_batches(nnunet_environment))
    assert runs[0] == runs[1]


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
    wait_until(lambda: not own_processes(), "the workers have ended")
