"""`detaug preview --nnunet` draws the samples that nnU-Net's own trainer would get.

It leaves no file and no variable.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from PIL import Image

from detaug.nnunet.training_batches import training_batches
from detaug.nnunet.verification.settings import Settings
from detaug.tools.cli import main
from detaug.tools.previews.preview import preview_training

pytest.importorskip("nnunetv2")


def test_samples_are_the_trainers_with_every_stage(nnunet_environment: Path) -> None:
    environment_before = dict(os.environ)
    settings = Settings("1", "3d_fullres", device="cpu", seed=3)
    preview = preview_training(settings, samples=3)
    assert dict(os.environ) == environment_before
    augmenter, *_ = training_batches(settings)
    with augmenter:
        batch = next(augmenter)
    for index in range(2):
        sample = preview.samples[index]
        axial = sample.steps[-1].view.planes[0].image
        np.testing.assert_array_equal(axial, batch["data"][index, 0, 14].numpy())
        assert sample.title == f"epoch 0, step 0, sample {index}: {batch['keys'][index]}"
        first = sample.steps[0]
        assert first.name == "SpatialTransform"
        assert sample.before.shape > first.view.shape, "the whole enlarged patch is shown first"
    assert preview.title == "Dataset001_MNI152, 3d_fullres, fold 0, nnUNetTrainerDetAug"


def test_command_draws_2d_and_refuses_what_is_no_training_of_detaugs(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["preview", "--nnunet", "1", "2d"]
    drawn = CliRunner().invoke(main, [*command, "-o", "2d.png", "--samples", "2"])
    assert drawn.exit_code == 0, drawn.output
    assert Image.open("2d.png").width > 600
    refused = CliRunner().invoke(main, [*command, "-tr", "nnUNetTrainer"])
    assert refused.exit_code == 2, refused.output
    message = "nnUNetTrainer is not a trainer of detaug's: its batches are not reproducible"
    assert message in refused.output
    assert sorted(tmp_path.iterdir()) == [tmp_path / "2d.png"]
