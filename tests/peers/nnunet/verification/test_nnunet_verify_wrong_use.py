"""`detaug nnunet verify` first looks for all that it needs.

It says in one line what is missing, and exits with 2.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from detaug.nnunet.verification.settings import Settings, checked, link_predictions
from detaug.tools.cli import main

NAME = "Dataset007_Liver"


@pytest.fixture
def preprocessed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a data set that seems to be preprocessed."""
    folder = tmp_path / "preprocessed" / NAME
    folder.mkdir(parents=True)
    (folder / "dataset.json").write_text("{}")
    configurations: dict[str, Any] = {"2d": {}, "3d_fullres": {}, "3d_cascade_fullres": {}}
    plans = folder / "nnUNetPlans.json"
    plans.write_text(json.dumps({"configurations": configurations}))
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "preprocessed"))
    monkeypatch.setenv("nnUNet_results", str(tmp_path / "results"))
    return folder


def refused(*arguments: str) -> str:
    """Run the command, check that it refuses the arguments, and return what it printed."""
    result = CliRunner().invoke(main, ["nnunet", "verify", *arguments])
    assert result.exit_code == 2, result.output
    assert result.output.count("Error: ") == 1, result.output
    return result.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("8", "3d_fullres"),
            "no preprocessed data set '8' with nnUNetPlans: run nnUNetv2_plan_and_preprocess",
        ),
        (
            ("7", "3d_halfres"),
            "no configuration '3d_halfres'; it has 2d, 3d_fullres, 3d_cascade_fullres",
        ),
        (("7", "3d_fullres", "-p", "NoPlans"), "no preprocessed data set '7' with NoPlans"),
        (("7", "3d_fullres", "--fold", "first"), "neither a number nor 'all'"),
        (("7", "3d_fullres", "--seed", "-1"), "seed"),
        (
            ("7", "3d_fullres", "-tr", "nnUNetTrainerMine"),
            "there is no trainer 'nnUNetTrainerMine'",
        ),
    ],
)
def test_a_training_that_is_not_there_is_refused(
    preprocessed: Path, arguments: tuple[str, ...], message: str
) -> None:
    text = refused(*arguments, "--device", "cpu")
    assert re.search(message, text), text


def write_list_as_plans(folder: Path) -> None:
    """Replace the plans by JSON that is no plans."""
    (folder / "nnUNetPlans.json").write_text("[]")


def add_namesake(folder: Path) -> None:
    """Make a folder of another data set with the same number."""
    (folder.parent / "Dataset007_Lung").mkdir()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (write_list_as_plans, "with nnUNetPlans: run nnUNetv2_plan"),
        (add_namesake, "More than one dataset name found"),
    ],
)
def test_a_damaged_data_set_is_refused(
    preprocessed: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(preprocessed)
    assert message in refused("7", "3d_fullres", "--device", "cpu")


def test_folders_that_are_wrong_are_named(
    preprocessed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "not an empty folder" in refused("7", "3d_fullres", "--keep", str(preprocessed))
    monkeypatch.setenv("nnUNet_preprocessed", "/nowhere")
    message = "nnUNet_preprocessed='/nowhere' in the environment is no folder"
    assert message in refused("7", "3d_fullres")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_is_not_there_is_refused(preprocessed: Path) -> None:
    assert "PyTorch sees no GPU" in refused("7", "3d_fullres", "--device", "cuda")


def test_a_cascades_second_stage_finds_what_the_first_predicted(
    preprocessed: Path, tmp_path: Path
) -> None:
    settings = Settings(NAME, "3d_cascade_fullres", trainer="nnUNetTrainer", device="cpu")
    stage = Path(NAME, "nnUNetTrainer__nnUNetPlans__3d_lowres", "predicted_next_stage")
    case = stage / "3d_cascade_fullres" / "case.b2nd"
    predicted = tmp_path / "results" / case
    predicted.parent.mkdir(parents=True)
    predicted.write_bytes(b"labels")
    assert checked(settings) == settings
    link_predictions(tmp_path / "other")
    assert (tmp_path / "other" / case).read_bytes() == b"labels"
