"""The raw data set is one that nnU-Net takes, and the environment is left as it was found."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from detaug.demo import load_template
from detaug.demo.nnunet_dataset import make_raw_dataset, nnunet_folders

nibabel = pytest.importorskip("nibabel")
pytestmark = pytest.mark.skipif(find_spec("nilearn") is None, reason="nilearn is not installed")


def test_every_image_has_its_labels_and_the_description_counts_them(tmp_path: Path) -> None:
    dataset = make_raw_dataset(tmp_path, dataset_id=7, name="Brain", num_cases=3, crop_shape=(20, 24, 28))
    assert dataset.name == "Dataset007_Brain"
    images = sorted(path.name for path in (dataset / "imagesTr").iterdir())
    labels = sorted(path.name for path in (dataset / "labelsTr").iterdir())
    assert images == [name.replace(".nii.gz", "_0000.nii.gz") for name in labels]
    assert len(images) == json.loads((dataset / "dataset.json").read_text())["numTraining"] == 3


def test_crops_lie_along_the_diagonal_of_the_brain(tmp_path: Path) -> None:
    dataset = make_raw_dataset(tmp_path, num_cases=2, crop_shape=(20, 24, 28))
    head = load_template()
    first, last = (
        np.asarray(nibabel.load(dataset / "imagesTr" / f"brain_{case:03d}_0000.nii.gz").dataobj) for case in (0, 1)
    )
    np.testing.assert_array_equal(first, head.image[:20, :24, :28])
    np.testing.assert_array_equal(last, head.image[-20:, -24:, -28:])
    seg = np.asarray(nibabel.load(dataset / "labelsTr" / "brain_001.nii.gz").dataobj)
    np.testing.assert_array_equal(seg, head.labels[-20:, -24:, -28:])


def test_environment_is_as_it_was_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("nnUNet_raw", "/elsewhere")
    monkeypatch.delenv("nnUNet_results", raising=False)
    with nnunet_folders(tmp_path):
        assert os.environ["nnUNet_raw"] == str(tmp_path / "raw")
        assert os.environ["nnUNet_results"] == str(tmp_path / "results")
    assert os.environ["nnUNet_raw"] == "/elsewhere"
    assert "nnUNet_results" not in os.environ
