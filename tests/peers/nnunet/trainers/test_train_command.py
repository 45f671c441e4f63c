"""`detaug nnunet train`: it finds the trainers, and says what is wrong in a line."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.cli import main
from tests.peers.nnunet.trainers.command_line import DETAUG, SHORT


def variables(root: Path, results: Path) -> dict[str, str]:
    return {
        "nnUNet_raw": str(root / "raw"), "nnUNet_preprocessed": str(root / "preprocessed"), "nnUNet_results": str(results),
        "nnUNet_extTrainer": str(SHORT), "nnUNet_n_proc_DA": "0", "nnUNet_def_n_proc": "1", "DETAUG_CPU_THREADS": "1",
        "SHORT_EPOCHS": "1", "SHORT_VALIDATION": "0",
    }  # fmt: skip


def command(*flags: str, trainer: str = "ShortDetAug") -> list[str]:
    return ["nnunet", "train", "1", "3d_fullres", "0", "-tr", trainer, "-device", "cpu", *flags]


def train(root: Path, results: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    """The command in a new process."""
    environment = {**os.environ, **variables(root, results)}
    return subprocess.run([DETAUG, *command(*flags)], env=environment, cwd=results, capture_output=True, text=True)


def told(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 2, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(lines) == 1, done.stderr
    return done.stderr[done.stderr.index(lines[0]) :]


@pytest.fixture
def refused(nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What the command says in this process and ends with exit status 2."""
    for name, value in variables(nnunet_environment, tmp_path).items():
        monkeypatch.setenv(name, value)

    def run(*flags: str, trainer: str = "ShortDetAug") -> str:
        done = CliRunner().invoke(main, command(*flags, trainer=trainer))
        assert done.exit_code == 2, done.output
        return done.stderr

    return run


def test_help_names_the_trainers_to_ask_for() -> None:
    done = CliRunner().invoke(main, ["nnunet", "train", "--help"])
    assert done.exit_code == 0, done.output
    assert "Without -tr it trains what that trains" in done.stdout
    assert "nnUNetTrainerDetAug" in done.stdout
    assert "usage: nnUNetv2_train" in done.stdout


@pytest.mark.parametrize("folders", [None, str(SHORT)])
def test_detaugs_trainers_are_found_whatever_nnunet_exttrainer_names(
    refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch, folders: str | None
) -> None:
    if folders is None:
        monkeypatch.delenv("nnUNet_extTrainer")
    # the next thing that a trainer looks at, which is found by detaug's trainers alone
    monkeypatch.setenv("DETAUG_CPU_THREADS", "none")
    said = refused(trainer="nnUNetTrainerDetAug")
    assert "Error: DETAUG_CPU_THREADS='none' in the environment must be a positive integer" in said


def test_a_wrong_name_in_detaug_allow_is_told_before_anything_is_trained(
    refused: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETAUG_ALLOW", "plans,version")
    assert "Error: DETAUG_ALLOW in the environment names 'version'; it may name seed, " in refused()
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
        assert "move it away, and checkpoint_best.pth beside it is taken" in line


def test_a_data_set_that_is_not_whole_is_told(
    refused: Callable[..., str], nnunet_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(nnunet_root / "preprocessed", copy)
    monkeypatch.setenv("nnUNet_preprocessed", str(copy))
    (copy / "Dataset001_MNI152" / "nnUNetPlans_3d_fullres" / "brain_002.pkl").unlink()
    assert "brain_002" in refused()
