"""A trained model exported for people without detaug, and two trainings compared."""

from __future__ import annotations

import shutil
import subprocess
import sysconfig
import venv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer

from detaug.errors import UnusableError
from detaug.nnunet import DetAugLoading, nnUNetTrainerDetAug
from detaug.nnunet.results import stock_trainer
from detaug.tools.cli import main
from tests.peers.nnunet.trainers.in_process import new_trainer

#: What a person without detaug does.
PREDICT = """
import importlib.util, sys, numpy, torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor
assert importlib.util.find_spec("detaug") is None
predictor = nnUNetPredictor(use_mirroring=False, device=torch.device("cpu"), verbose=False, allow_tqdm=False)
predictor.initialize_from_trained_model_folder(sys.argv[1], (0,), "checkpoint_final.pth")
predicted = predictor.predict_single_npy_array(numpy.load(sys.argv[2]), {"spacing": [1.0] * 3}, None, None, True)
numpy.save(sys.argv[3], predicted[1])
"""


def run(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)


CASES = {f"brain_{number:03d}": f"{number:016x}" for number in range(5)}


def fold_of(
    root: Path, results: Path, seed: int = 1, cases: dict[str, str] = CASES, **logged: Any
) -> Path:
    """The one fold of a model as after two epochs, with weights drawn from the seed."""
    made = new_trainer(root, nnUNetTrainerDetAug)
    made._run_seed = seed
    made._cases = cases
    made.initialize()
    made.current_epoch = 1
    for epoch in range(2):
        for name, value in {
            "train_losses": -0.25,
            "val_losses": -0.5,
            "mean_fg_dice": 0.75,
            "lrs": 0.01,
            **logged,
        }.items():
            made.logger.log(name, value[epoch] if isinstance(value, list) else value, epoch)
    folder = results / Path(made.output_folder_base).name
    fold = folder / "fold_0"
    fold.mkdir(parents=True)
    made.save_checkpoint(str(fold / "checkpoint_final.pth"))
    preprocessed = Path(made.preprocessed_dataset_folder_base)
    for name, source in {"plans.json": "nnUNetPlans.json", "dataset.json": "dataset.json"}.items():
        (folder / name).write_text((preprocessed / source).read_text())
    return fold


def test_an_exported_model_predicts_the_same_without_detaug(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = fold_of(nnunet_environment, tmp_path / "theirs").parent
    done = run("nnunet", "export", folder)
    exported = Path(done.stdout.strip())
    assert done.exit_code == 0
    assert exported == folder.with_name(folder.name.replace("nnUNetTrainerDetAug", "nnUNetTrainer"))
    mine, theirs = (
        torch.load(each / "fold_0" / "checkpoint_final.pth", weights_only=False)
        for each in (folder, exported)
    )
    assert theirs["trainer_name"] == "nnUNetTrainer"
    assert all(
        torch.equal(mine["network_weights"][name], theirs["network_weights"][name])
        for name in mine["network_weights"]
    )

    image = np.random.default_rng(0).normal(size=(1, 20, 24, 28)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    monkeypatch.setenv("nnUNet_extTrainer", run("nnunet", "path").stdout.strip())
    predictor = nnUNetPredictor(
        use_mirroring=False, device=torch.device("cpu"), verbose=False, allow_tqdm=False
    )
    predictor.initialize_from_trained_model_folder(str(folder), (0,), "checkpoint_final.pth")
    expected = predictor.predict_single_npy_array(
        image, {"spacing": [1.0] * 3}, save_or_return_probabilities=True
    )

    # What this environment has, without what is linked into it from elsewhere: detaug's own tree.
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    paths = {"base": str(tmp_path / "venv"), "platbase": str(tmp_path / "venv")}
    (Path(sysconfig.get_path("purelib", vars=paths)) / "others.pth").write_text(
        sysconfig.get_path("purelib")
    )
    file = tmp_path / "predicted.npy"
    command = [python, "-I", "-c", PREDICT, exported, tmp_path / "image.npy", file]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert np.array_equal(np.load(file), expected[1])

    again = run("nnunet", "export", folder)
    assert (again.exit_code, "exists already" in again.output) == (2, True)
    elsewhere = run("nnunet", "export", folder, "-o", tmp_path / "new" / "model")
    assert elsewhere.exit_code == 0
    assert sorted(each.name for each in (tmp_path / "new").iterdir()) == ["model"], (
        "nothing partial is left"
    )


def test_a_model_that_nnunet_alone_cannot_build_is_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Other(DetAugLoading, nnUNetTrainer):
        @staticmethod
        def build_network_architecture(*_: Any, **__: Any) -> Any:
            return torch.nn.Identity()

    from detaug.nnunet import trainers

    monkeypatch.setattr(trainers, "Other", Other, raising=False)
    with pytest.raises(UnusableError, match=r"builds a network of its own \(Other\.build"):
        stock_trainer("Other")
    assert stock_trainer("nnUNetTrainerDetAug_250epochs") == "nnUNetTrainer_250epochs"
    with pytest.raises(UnusableError, match="nnU-Net's own trainer"):
        stock_trainer("nnUNetTrainer_250epochs")
    with pytest.raises(UnusableError, match="there is no trainer 'Nobody'"):
        stock_trainer("Nobody")
    for folder in ("nothing", "a__b__c"):
        (tmp_path / folder).mkdir()
        done = run("nnunet", "export", tmp_path / folder)
        assert done.exit_code == 2, done.output
        assert "Traceback" not in done.output


def test_trainings_are_compared_and_the_first_difference_is_told(
    nnunet_environment: Path, tmp_path: Path
) -> None:
    one = fold_of(nnunet_environment, tmp_path / "one")
    same = fold_of(nnunet_environment, tmp_path / "same")
    equal = run("diff", one, same)
    assert (equal.exit_code, equal.output) == (0, "equal (checkpoint_final.pth)\n")

    other = fold_of(nnunet_environment, tmp_path / "other", seed=2, train_losses=[-0.25, -0.3])
    found = run("diff", one, other)
    assert found.exit_code == 1
    assert "different: first of all in seed" in found.output
    assert "settings: seed: 1 and 2" in found.output
    assert "metrics from epoch 1 on: train_losses: -0.25 and -0.3" in found.output
    assert "weights: " in found.output


def test_cases_that_differ_between_trainings_are_named(
    nnunet_environment: Path, tmp_path: Path
) -> None:
    one = fold_of(nnunet_environment, tmp_path / "one")
    changed = {**CASES, "brain_001": "changed", "brain_003": "changed"}
    other = fold_of(nnunet_environment, tmp_path / "other", cases=changed)
    found = run("diff", one, other)
    assert found.exit_code == 1
    assert found.output.splitlines() == [
        "settings: data: other files of brain_001, brain_003",
        "different: first of all in data (checkpoint_final.pth)",
    ]


def test_what_cannot_be_compared_is_told(nnunet_environment: Path, tmp_path: Path) -> None:
    one = fold_of(nnunet_environment, tmp_path / "one")
    damaged = fold_of(nnunet_environment, tmp_path / "damaged")
    file = damaged / "checkpoint_final.pth"
    shutil.copyfile(file, damaged / "checkpoint_best.pth")
    file.write_bytes(file.read_bytes()[:1000])
    empty = tmp_path / "empty"
    empty.mkdir()
    for other, said in (
        (damaged, "move it away, and checkpoint_best.pth beside it is used"),
        (one.parent, f"pass the folder of a fold: {one}"),
        (empty, "has no checkpoint (checkpoint_final.pth"),
    ):
        done = run("diff", one, other)
        assert (done.exit_code, said in done.output) == (2, True), done.output
