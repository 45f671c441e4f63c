"""`detaug nnunet train`: it finds the trainers, and says what is wrong in a line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.cli import main
from tests.peers.nnunet.trainers.command_line import DETAUG, SHORT, Run


def command(*flags: str, trainer: str = "ShortDetAug") -> list[str]:
    return ["nnunet", "train", "1", "3d_fullres", "0", "-tr", trainer, "-device", "cpu", *flags]


@pytest.fixture
def refused(nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """What the command says in this process and ends with exit status 2."""
    monkeypatch.setenv("nnUNet_extTrainer", str(SHORT))

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
    run = Run(nnunet_root, tmp_path, environment={"nnUNet_extTrainer": str(SHORT), "SHORT_EPOCHS": "1"})
    run.program = (DETAUG, "nnunet", "train")
    run.train(processes=0, SHORT_VALIDATION="0")
    final, latest = (run.folder / f"checkpoint_{name}.pth" for name in ("final", "latest"))
    whole = final.read_bytes()
    final.unlink()
    for content in (b"", whole[: len(whole) // 2]):
        latest.write_bytes(content)
        done = run.attempt("--c", processes=0)
        assert (done.returncode, done.stdout.count("\nError: "), "Traceback" in done.stdout) == (2, 1, False)
        assert f"{latest} is no checkpoint of nnU-Net's, or not a whole one" in done.stdout
        assert "move it away, and checkpoint_best.pth beside it is taken" in done.stdout
