"""`detaug nnunet demo`: the parts of the toy training, and the whole."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.demo.nnunet import CASES, make_toy_dataset
from detaug.tools.cli import main
from tests.support.waiting import run_program


def images_of(folder: Path) -> list[bytes]:
    """Return the voxels of all images in a folder."""
    import nibabel

    files = sorted(folder.rglob("*.nii.gz"))
    return [nibabel.load(file).get_fdata().tobytes() for file in files]


def test_toy_data_set_follows_from_the_seed(tmp_path: Path) -> None:
    make_toy_dataset(tmp_path / "one", 1)
    make_toy_dataset(tmp_path / "same", 1)
    make_toy_dataset(tmp_path / "other", 2)
    images = images_of(tmp_path / "one")
    assert len(images) == 2 * CASES
    assert images_of(tmp_path / "same") == images
    assert set(images).isdisjoint(images_of(tmp_path / "other"))


def find_nothing(name: str, package: str | None = None) -> None:
    """Find no module, in place of `importlib.util.find_spec`."""


def test_missing_nnunet_is_one_line_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", find_nothing)
    done = CliRunner().invoke(main, ["nnunet", "demo"])
    assert done.exit_code == 2
    assert done.output == "Error: nnU-Net is not installed: pip install 'detaug[nnunet]'\n"


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_training_that_is_killed_and_continued_ends_with_the_same_checkpoint() -> None:
    command = [sys.executable, "-m", "detaug", "nnunet", "demo"]
    # GNU readline, which a debugger loads, sets COLUMNS without a change of os.environ.
    environment = {**os.environ, "COLUMNS": "200"}
    done = run_program(command, timeout=7000, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed in epoch 2 of 2, resumed" in done.stdout
