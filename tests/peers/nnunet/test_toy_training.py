"""`detaug nnunet demo`: the pieces of the toy training, and the whole of it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from detaug.demo.nnunet import CASES, make_toy_dataset
from detaug.tools.cli import main
from tests.support.waiting import run_program


def test_toy_data_set_follows_from_the_seed(tmp_path: Path) -> None:
    import nibabel

    found = []
    for name, seed in (("one", 1), ("same", 1), ("other", 2)):
        make_toy_dataset(tmp_path / name, seed)
        files = sorted((tmp_path / name).rglob("*.nii.gz"))
        found.append([nibabel.load(file).get_fdata().tobytes() for file in files])
    one, same, other = found
    assert len(one) == 2 * CASES
    assert one == same
    assert not {*one} & {*other}


def test_missing_nnunet_is_one_line_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *more: None)
    done = CliRunner().invoke(main, ["nnunet", "demo"])
    assert (done.exit_code, done.output) == (
        2,
        "Error: nnU-Net is not installed: pip install 'detaug[nnunet]'\n",
    )


@pytest.mark.slow
@pytest.mark.timeout(7200)  # a training takes as long as the machine lets it
def test_training_that_is_killed_and_continued_ends_with_the_same_checkpoint() -> None:
    command = [sys.executable, "-m", "detaug", "nnunet", "demo"]
    # GNU readline, which a debugger loads, sets COLUMNS behind os.environ's back
    environment = {**os.environ, "COLUMNS": "200"}
    done = run_program(command, timeout=7000, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "killed in epoch 2 of 2, resumed" in done.stdout
