"""Everything that can be wrong with a training's input is an error before the training starts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import blosc2
import pytest
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from detaug.errors import BatchError, UnusableError
from detaug.nnunet import nnUNetTrainerDetAug
from tests.peers.nnunet.trainers.in_process import (
    ShortDetAug,
    ShortDeterministic,
    initialized,
    new_trainer,
)


class NeverTrains(ShortDetAug):
    """A trainer that must not get to a batch."""

    def train_step(self, batch: dict) -> dict:
        raise AssertionError("a batch was trained on")


@pytest.mark.parametrize(
    ("is_halved", "message"),
    [(True, "brain_002: "), (False, r"1 cases .* have no image \(\.b2nd\): brain_002")],
    ids=["halved", "missing"],
)
def test_a_case_that_is_not_whole_is_told_before_it_trains(
    copied: Path, is_halved: bool, message: str
) -> None:
    file = copied / "brain_002.b2nd"
    content = file.read_bytes()
    file.unlink()
    if is_halved:
        file.write_bytes(content[: len(content) // 2])
    splits = copied.parent / "splits_final.json"
    splits.unlink(missing_ok=True)
    with pytest.raises(ValueError, match=message):
        new_trainer(copied.parents[2], NeverTrains).run_training()
    assert splits.exists() == is_halved, "nnU-Net has split without the case"


@pytest.mark.parametrize("trainer", [ShortDetAug, ShortDeterministic])
def test_an_ignore_label_that_was_added_after_preprocessing_is_told_before_it_trains(
    copied: Path, trainer: type
) -> None:
    file = copied.parent / "dataset.json"
    description = json.loads(file.read_text())
    description["labels"]["ignore"] = 3
    file.write_text(json.dumps(description))
    with pytest.raises(ValueError, match=r"brain_000: .*\(-1, 0, 1, 2\): .*labels were changed"):
        new_trainer(copied.parents[2], trainer).on_train_start()


@pytest.mark.parametrize("trainer", [ShortDetAug, ShortDeterministic])
@pytest.mark.parametrize(("side", "word"), [("val", "validation"), ("train", "training")])
def test_a_fold_without_cases_on_one_side_is_told_before_it_trains(
    copied: Path, trainer: type, side: str, word: str
) -> None:
    fold: dict[str, list[str]] = {"train": ["brain_000", "brain_001"], "val": ["brain_002"]}
    fold[side] = []
    (copied.parent / "splits_final.json").write_text(json.dumps([fold]))
    with pytest.raises(ValueError, match=rf"fold 0 has no {word} cases: .*splits_final\.json"):
        new_trainer(copied.parents[2], trainer).on_train_start()


def test_segmentations_that_the_final_validation_wants_are_looked_for_at_the_start(
    copied: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = copied.parents[2]
    new_trainer(root, nnUNetTrainerDetAug).on_train_start()
    (copied.parent / "gt_segmentations" / "brain_000.nii.gz").unlink()
    missing = r"1 of 1 validation cases .*gt_segmentations: brain_000"
    with pytest.raises(FileNotFoundError, match=missing):
        new_trainer(root, nnUNetTrainerDetAug).on_train_start()

    assert not caplog.records
    new_trainer(root, ShortDetAug).on_train_start()
    assert "gt_segmentations: brain_000" in caplog.text, "whose own validation may need none"


class RefusesBrightImages:
    """A transform that fails for bright images, and calls others for the rest."""

    def __init__(self, transforms: Any) -> None:
        self.transforms = transforms

    def __call__(self, image: Any, **others: Any) -> Any:
        if image.max() > 900:
            raise LookupError("too bright")
        return self.transforms(image=image, **others)


def take_all(loader: Any) -> None:
    """Read batches until one fails."""
    while True:
        next(loader)


@pytest.mark.parametrize("processes", ["0", "2"])
@pytest.mark.parametrize("trainer", [ShortDetAug, ShortDeterministic])
def test_an_error_while_a_batch_is_made_names_the_case(
    copied: Path, monkeypatch: pytest.MonkeyPatch, trainer: type, processes: str
) -> None:
    monkeypatch.setenv("nnUNet_n_proc_DA", processes)

    class Refusing(trainer):  # type: ignore[misc]
        def get_training_transforms(self, *arguments: Any, **options: Any) -> Any:
            transforms = nnUNetTrainer.get_training_transforms(*arguments, **options)
            return RefusesBrightImages(transforms)

    refusing = new_trainer(copied.parents[2], Refusing)
    refusing.num_iterations_per_epoch = 100
    refusing.on_train_start()
    image = blosc2.open(str(copied / "brain_002.b2nd"), mode="a")
    image[:] = 1000.0
    message = r"(?s)too bright.*\na sample of case brain_002 was being made$"
    loader = refusing.dataloader_train
    with loader, pytest.raises(LookupError, match=message) as error:
        take_all(loader)
    assert isinstance(error.value, BatchError)


def test_another_version_of_nnunet(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metadata = tmp_path / "site" / "nnunetv2-3.1.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: nnunetv2\nVersion: 3.1\n")
    monkeypatch.syspath_prepend(tmp_path / "site")
    trainer = new_trainer(nnunet_environment, ShortDetAug)
    with pytest.raises(UnusableError, match=r"nnunetv2 3.1 is installed.* support 2.8.x"):
        trainer.run_training()
    monkeypatch.setenv("DETAUG_ANY_NNUNET", "1")
    initialized(nnunet_environment, ShortDetAug)


def test_without_a_seed_one_is_drawn_and_logged(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DETAUG_SEED")
    one = new_trainer(nnunet_environment, ShortDetAug)
    other = new_trainer(nnunet_environment, ShortDetAug)
    assert one.run_seed != other.run_seed
    assert f"DETAUG_SEED={one.run_seed} repeats this training" in Path(one.log_file).read_text()
