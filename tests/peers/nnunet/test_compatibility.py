"""Everything that detaug knows of nnU-Net's inside is there in the installed version."""

from __future__ import annotations

from pathlib import Path

import pytest

from detaug.errors import UnusableError
from detaug.nnunet import compatibility
from detaug.nnunet.compatibility import trainer_class
from detaug.nnunet.trainers import DetAugLoading
from detaug.nnunet.verification.recording import Recording
from tests.support.public_names import assert_found_under_their_own_names

ROOT = Path(compatibility.__file__).parents[1]


#: The methods of nnU-Net's trainer that mixins of detaug wrap or replace.
HOOKS = {
    "_build_loss",
    "_do_i_compile",
    "get_dataloaders",
    "get_training_transforms",
    "get_validation_transforms",
    "initialize",
    "load_checkpoint",
    "on_train_end",
    "on_train_epoch_start",
    "on_train_start",
    "on_validation_epoch_start",
    "perform_actual_validation",
    "run_training",
    "save_checkpoint",
    "train_step",
    "validation_step",
}


def test_hooks_are_the_methods_that_our_mixins_share_with_nnunets_trainer() -> None:
    ours = {
        name
        for kind in (Recording, *DetAugLoading.__mro__)
        for name in vars(kind)
        if not name.startswith("__")
    }
    assert ours & set(dir(trainer_class())) == HOOKS


def test_a_trainer_that_is_not_there_is_told_by_its_name() -> None:
    from nnunetv2.run import run_training

    before = run_training.recursive_find_trainer_class_by_name
    with compatibility.trainers_found_through(lambda kind: kind):
        found = run_training.recursive_find_trainer_class_by_name
        assert found("nnUNetTrainer") is trainer_class()
        with pytest.raises(UnusableError, match="nnUNetTrainerOfNobody"):
            found("nnUNetTrainerOfNobody")
    assert run_training.recursive_find_trainer_class_by_name is before


def test_no_other_file_imports_nnunet() -> None:
    importing = {
        file.relative_to(ROOT).as_posix()
        for file in ROOT.rglob("*.py")
        if any(
            line.lstrip().startswith(("from nnunetv2", "import nnunetv2"))
            for line in file.read_text().splitlines()
        )
    }
    assert importing == {"nnunet/compatibility.py"}


def test_public_classes_are_found_under_their_own_names() -> None:
    assert_found_under_their_own_names("detaug.nnunet")
