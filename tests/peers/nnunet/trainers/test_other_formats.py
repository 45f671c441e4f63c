"""Cases in nnU-Net's .npz, and in formats that a user registers with nnU-Net."""

from __future__ import annotations

import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import blosc2
import numpy as np
import pytest
import torch
from nnunetv2.training.dataloading import nnunet_dataset
from nnunetv2.training.dataloading.nnunet_dataset import nnUNetBaseDataset

from detaug import StateMismatch
from tests.peers.nnunet.trainers.in_process import ShortDetAug, ShortDeterministic, new_trainer


class TorchFiles(nnUNetBaseDataset):
    """A user's data set, with one ``.pt`` file for each case."""

    def load_case(self, identifier: str) -> Any:
        image, labels = torch.load(f"{self.source_folder}/{identifier}.pt")
        properties = pickle.loads(Path(self.source_folder, f"{identifier}.pkl").read_bytes())
        return image.numpy(), labels.numpy(), None, properties

    @staticmethod
    def save_case(*_: Any) -> None:
        raise NotImplementedError

    @staticmethod
    def get_identifiers(folder: str) -> list[str]:
        return [file.stem for file in Path(folder).glob("*.pt")]


def write_npz(image: np.ndarray, labels: np.ndarray, name: Path) -> None:
    """Write a case as nnU-Net's ``.npz``."""
    np.savez_compressed(f"{name}.npz", data=image, seg=labels)


def write_pt(image: np.ndarray, labels: np.ndarray, name: Path) -> None:
    """Write a case of `TorchFiles`."""
    torch.save((torch.from_numpy(image), torch.from_numpy(labels)), f"{name}.pt")


WRITE: dict[str, Callable[..., None]] = {"npz": write_npz, "pt": write_pt}


@pytest.fixture(params=WRITE)
def cases(request: pytest.FixtureRequest, copied: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a configuration whose cases are in another format.

    nnU-Net can read each format.
    """
    monkeypatch.setitem(nnunet_dataset.file_ending_dataset_mapping, "pt", TorchFiles)
    write = WRITE[request.param]
    for label_file in sorted(copied.glob("*_seg.b2nd")):
        name = label_file.with_name(label_file.name.removesuffix("_seg.b2nd"))
        image_file = name.with_suffix(".b2nd")
        image = blosc2.open(str(image_file))[:]
        labels = blosc2.open(str(label_file))[:]
        write(image, labels, name)
        label_file.unlink()
        image_file.unlink()
    return copied


def test_nnunets_own_batches_are_trained_on_and_continued(cases: Path) -> None:
    """nnU-Net unpacks ``.npz`` into a ``.npy`` file when a training starts."""
    root = cases.parents[2]

    class Stopped(ShortDeterministic):
        def on_epoch_start(self) -> None:
            super().on_epoch_start()
            if self.current_epoch == 1:
                raise KeyboardInterrupt

    Stopped.__name__ = ShortDeterministic.__name__
    whole = new_trainer(root, ShortDeterministic)
    whole.run_training()
    final = Path(whole.output_folder) / "checkpoint_final.pth"
    expected = final.read_bytes()
    shutil.rmtree(final.parent)
    with pytest.raises(KeyboardInterrupt):
        new_trainer(root, Stopped).run_training()
    resumed = new_trainer(root, ShortDeterministic)
    resumed.load_checkpoint(str(final.with_name("checkpoint_latest.pth")))
    resumed.run_training()
    assert final.read_bytes() == expected


def test_detaugs_loader_leaves_them_to_nnunets_and_says_so(cases: Path) -> None:
    trainer = new_trainer(cases.parents[2], ShortDetAug)
    trainer.on_train_start()
    log = Path(trainer.log_file).read_text()
    assert "detaug: train: nnU-Net's own loader is kept: " in log
    assert "is not nnU-Net's nnUNetDatasetBlosc2" in log
    assert len(next(trainer.dataloader_train)["data"]) == 2
    assert trainer._record().loading == "nnU-Net"


def test_a_changed_file_is_another_training(cases: Path) -> None:
    root = cases.parents[2]

    def record() -> Any:
        trainer = new_trainer(root, ShortDeterministic)
        trainer.on_train_start()
        return trainer._record()

    original = record()
    assert record().check_continues(original) == []
    (file,) = [file for file in cases.glob("brain_002.*") if file.suffix in (".npz", ".pt")]
    shutil.copy(file.with_stem("brain_003"), file)
    with pytest.raises(StateMismatch, match=r"data: other files of brain_002 \(preprocessed"):
        record().check_continues(original)


def test_a_case_without_files_is_told_before_it_trains(cases: Path) -> None:
    for file in cases.glob("brain_002.*"):
        if file.suffix != ".pkl":
            file.unlink()
    with pytest.raises(ValueError, match=r"1 cases in .* have no image: brain_002"):
        new_trainer(cases.parents[2], ShortDeterministic).on_train_start()
