"""`detaug nnunet train`: it finds the trainers, and says what is wrong in a line."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.tools.cli import main
from tests.peers.nnunet.trainers.command_line import DETAUG, SHORT, Run


def test_help_names_the_trainers_to_ask_for() -> None:
    done = CliRunner().invoke(main, ["nnunet", "train", "--help"])
    assert done.exit_code == 0, done.output
    assert "Without -tr it trains nnU-Net's own nnUNetTrainer" in done.stdout
    assert "nnUNetTrainerDetAug" in done.stdout
    assert "usage: nnUNetv2_train" in done.stdout


@pytest.mark.parametrize(
    ("folders", "variable", "said"),
    [
        (
            "",
            "DETAUG_CPU_THREADS",
            "DETAUG_CPU_THREADS='version' in the environment must be a positive integer",
        ),
        (
            str(SHORT),
            "DETAUG_ALLOW",
            "DETAUG_ALLOW in the environment names 'version'; it may name seed, ",
        ),
    ],
)
def test_detaugs_trainers_are_found_whatever_nnunet_exttrainer_names_and_refuse_a_wrong_environment_first(
    nnunet_environment: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folders: str,
    variable: str,
    said: str,
) -> None:
    monkeypatch.setenv("nnUNet_extTrainer", folders)
    monkeypatch.setenv(variable, "version")
    command = [
        "nnunet",
        "train",
        "1",
        "3d_fullres",
        "0",
        "-tr",
        "nnUNetTrainerDetAug",
        "-device",
        "cpu",
    ]
    done = CliRunner().invoke(main, command)
    assert (done.exit_code, f"Error: {said}" in done.stderr) == (2, True), done.output
    assert not list(tmp_path.glob("*/*/fold_0/checkpoint_*"))


@pytest.mark.slow
def test_ones_own_trainers_are_found_and_a_broken_checkpoint_is_named_with_the_one_that_loads(
    nnunet_root: Path, tmp_path: Path
) -> None:
    run = Run(
        nnunet_root, tmp_path, environment={"nnUNet_extTrainer": str(SHORT), "SHORT_EPOCHS": "1"}
    )
    run.program = (DETAUG, "nnunet", "train")
    run.train(processes=0, SHORT_VALIDATION="0")
    final, latest = (run.folder / f"checkpoint_{name}.pth" for name in ("final", "latest"))
    whole = final.read_bytes()
    final.unlink()
    for content in (b"", whole[: len(whole) // 2]):
        latest.write_bytes(content)
        done = run.attempt("--c", processes=0)
        assert (done.returncode, done.stdout.count("\nError: "), "Traceback" in done.stdout) == (
            2,
            1,
            False,
        )
        assert f"{latest} is no checkpoint of nnU-Net's, or not a whole one" in done.stdout
        assert "move it away, and checkpoint_best.pth beside it is taken" in done.stdout
