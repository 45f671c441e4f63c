"""The raw data set is one that nnU-Net takes, and the environment is left as it was found."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from detaug.demo.nnunet import nnunet_folders, write_raw_dataset

nibabel = pytest.importorskip("nibabel")


def test_every_image_has_its_labels_and_the_description_counts_them(tmp_path: Path) -> None:
    cases = [(f"case_{n}", [np.full((4, 5, 6), n, np.float32)], np.ones((4, 5, 6), np.uint8)) for n in range(3)]
    dataset = tmp_path / "Dataset007_Brain"
    write_raw_dataset(dataset, cases, ("ball",))
    images = sorted(path.name for path in (dataset / "imagesTr").iterdir())
    labels = sorted(path.name for path in (dataset / "labelsTr").iterdir())
    assert images == [name.replace(".nii.gz", "_0000.nii.gz") for name in labels]
    assert len(images) == json.loads((dataset / "dataset.json").read_text())["numTraining"] == 3
    np.testing.assert_array_equal(nibabel.load(dataset / "imagesTr" / images[2]).get_fdata(), cases[2][1][0])


def test_environment_is_as_it_was_afterwards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("nnUNet_raw", "/elsewhere")
    monkeypatch.delenv("nnUNet_results", raising=False)
    with nnunet_folders(tmp_path):
        assert os.environ["nnUNet_raw"] == str(tmp_path / "raw")
        assert os.environ["nnUNet_results"] == str(tmp_path / "results")
    assert os.environ["nnUNet_raw"] == "/elsewhere"
    assert "nnUNet_results" not in os.environ
