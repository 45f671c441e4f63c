"""`detaug nnunet train`: it finds the trainers, and says what is wrong in a line."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.peers.nnunet.trainers.command_line import DETAUG, SHORT


def train(
    root: Path, results: Path, *flags: str, trainer: str = "ShortDetAug", **variables: str | None
) -> subprocess.CompletedProcess[str]:
    """The command in a new process; a variable that is None is not set."""
    settings = {
        "nnUNet_raw": str(root / "raw"), "nnUNet_preprocessed": str(root / "preprocessed"), "nnUNet_results": str(results),
        "nnUNet_extTrainer": str(SHORT), "nnUNet_n_proc_DA": "0", "nnUNet_def_n_proc": "1", "DETAUG_CPU_THREADS": "1",
        "SHORT_EPOCHS": "1", "SHORT_VALIDATION": "0", **variables,
    }  # fmt: skip
    environment = {key: value for key, value in {**os.environ, **settings}.items() if value is not None}
    command = [DETAUG, "nnunet", "train", "1", "3d_fullres", "0", "-tr", trainer, "-device", "cpu", *flags]
    return subprocess.run(command, env=environment, cwd=results, capture_output=True, text=True)


def told(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, done.stderr
    return done.stderr[done.stderr.index(lines[0]) :]


@pytest.mark.parametrize("folders", [None, str(SHORT)])
def test_detaugs_trainers_are_found_whatever_nnunet_exttrainer_names(
    nnunet_root: Path, tmp_path: Path, folders: str | None
) -> None:
    # the next thing that a trainer looks at, which is found by detaug's trainers alone
    done = train(
        nnunet_root, tmp_path, trainer="nnUNetTrainerDetAug", nnUNet_extTrainer=folders, DETAUG_CPU_THREADS="none"
    )
    assert "DETAUG_CPU_THREADS='none' in the environment must be a positive integer" in told(done)


def test_a_wrong_name_in_detaug_allow_is_told_before_anything_is_trained(nnunet_root: Path, tmp_path: Path) -> None:
    done = train(nnunet_root, tmp_path, DETAUG_ALLOW="plans,version")
    assert "DETAUG_ALLOW in the environment names 'version'; it may name seed, " in told(done)
    assert not list(tmp_path.glob("*/*/fold_0/checkpoint_*"))


@pytest.mark.slow
def test_ones_own_trainers_are_found_and_a_broken_checkpoint_is_named_with_the_one_that_loads(
    nnunet_root: Path, tmp_path: Path
) -> None:
    done = train(nnunet_root, tmp_path)
    assert done.returncode == 0, done.stderr
    final = next(tmp_path.glob("*/*/fold_0/checkpoint_final.pth"))
    latest = final.with_name("checkpoint_latest.pth")
    whole = final.read_bytes()
    final.unlink()
    for content in (b"", whole[: len(whole) // 2]):
        latest.write_bytes(content)
        line = told(train(nnunet_root, tmp_path, "--c"))
        assert f"{latest} is no checkpoint of nnU-Net's, or not a whole one" in line
        assert "move it away, and checkpoint_best.pth beside it, which can be read, is taken" in line


def test_a_data_set_that_is_not_whole_is_told(nnunet_root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(nnunet_root / "preprocessed", copy / "preprocessed")
    (copy / "preprocessed" / "Dataset001_MNI152" / "nnUNetPlans_3d_fullres" / "brain_002.pkl").unlink()
    assert "brain_002" in told(train(copy, tmp_path))
    assert "has no NoPlans.json" in told(train(copy, tmp_path, "-p", "NoPlans"))


def test_a_trainer_that_is_not_there_is_told(nnunet_root: Path, tmp_path: Path) -> None:
    assert "there is no trainer 'nnUNetTrainerOfNobody'" in told(
        train(nnunet_root, tmp_path, trainer="nnUNetTrainerOfNobody")
    )
