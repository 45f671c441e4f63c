"""The installed nnU-Net has every private name of nnU-Net's that detaug uses."""

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
    names: set[str] = set()
    for kind in (Recording, *DetAugLoading.__mro__):
        names.update(name for name in vars(kind) if not name.startswith("__"))
    assert names & set(dir(trainer_class())) == HOOKS


def unchanged(kind: type) -> type:
    """Return the class itself."""
    return kind


def test_a_trainer_that_is_not_there_is_told_by_its_name() -> None:
    from nnunetv2.run import run_training

    original = run_training.recursive_find_trainer_class_by_name
    with compatibility.trainers_found_through(unchanged):
        find = run_training.recursive_find_trainer_class_by_name
        assert find("nnUNetTrainer") is trainer_class()
        with pytest.raises(UnusableError, match="nnUNetTrainerOfNobody"):
            find("nnUNetTrainerOfNobody")
    assert run_training.recursive_find_trainer_class_by_name is original


def imports_nnunet(file: Path) -> bool:
    """Return whether a line of a file imports nnU-Net."""
    lines = [line.lstrip() for line in file.read_text().splitlines()]
    return any(line.startswith(("from nnunetv2", "import nnunetv2")) for line in lines)


def test_no_other_file_imports_nnunet() -> None:
    importing = [file for file in ROOT.rglob("*.py") if imports_nnunet(file)]
    assert importing == [ROOT / "nnunet" / "compatibility.py"]


def test_public_classes_are_found_under_their_own_names() -> None:
    assert_found_under_their_own_names("detaug.nnunet")
