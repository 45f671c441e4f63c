"""Trained models are exported for people without detaug, and trainings are compared."""

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

#: What a person without detaug runs: MODEL IMAGE OUTPUT.
PREDICT = """
import importlib.util
import sys
import numpy
import torch
from nnunetv2.inference.predict_from_raw_data import nnUNetPredictor

assert importlib.util.find_spec("detaug") is None
model, image, output = sys.argv[1:]
predictor = nnUNetPredictor(
    use_mirroring=False, device=torch.device("cpu"), verbose=False, allow_tqdm=False
)
predictor.initialize_from_trained_model_folder(model, (0,), "checkpoint_final.pth")
properties = {"spacing": [1.0] * 3}
_, probabilities = predictor.predict_single_npy_array(
    numpy.load(image), properties, None, None, True
)
numpy.save(output, probabilities)
"""


def run(*arguments: Any) -> Result:
    """Run `detaug` with arguments, in this process."""
    texts = [str(argument) for argument in arguments]
    return CliRunner().invoke(main, texts, catch_exceptions=False)


#: Fingerprints of the cases' files, by case.
CASES = {f"brain_{index:03d}": f"{index:016x}" for index in range(5)}
#: What a training has logged in each of two epochs.
LOGGED = {
    "train_losses": [-0.25, -0.25],
    "val_losses": [-0.5, -0.5],
    "mean_fg_dice": [0.75, 0.75],
    "lrs": [0.01, 0.01],
}


def fold_of(
    root: Path,
    results: Path,
    seed: int = 1,
    cases: dict[str, str] = CASES,
    **logged: list[float],
) -> Path:
    """Write a model as after two epochs, and return the folder of its only fold.

    Args:
        root: folder with nnU-Net's ``preprocessed``.
        results: where the model's folder is written.
        seed: from which the weights are drawn.
        cases: fingerprints of the cases' files.
        logged: other values than those of `LOGGED`.
    """
    trainer = new_trainer(root, nnUNetTrainerDetAug)
    trainer._run_seed = seed
    trainer._cases = cases
    trainer.initialize()
    trainer.current_epoch = 1
    for name, values in {**LOGGED, **logged}.items():
        for epoch, value in enumerate(values):
            trainer.logger.log(name, value, epoch)
    model = results / Path(trainer.output_folder_base).name
    fold = model / "fold_0"
    fold.mkdir(parents=True)
    trainer.save_checkpoint(str(fold / "checkpoint_final.pth"))
    preprocessed = Path(trainer.preprocessed_dataset_folder_base)
    shutil.copyfile(preprocessed / "nnUNetPlans.json", model / "plans.json")
    shutil.copyfile(preprocessed / "dataset.json", model / "dataset.json")
    return fold


def load_final(model: Path) -> dict[str, Any]:
    """Return the last checkpoint of a model's only fold."""
    return torch.load(model / "fold_0" / "checkpoint_final.pth", weights_only=False)


def predict_here(model: Path, image: np.ndarray) -> np.ndarray:
    """Return the probabilities that a model predicts in this process."""
    predictor = nnUNetPredictor(
        use_mirroring=False, device=torch.device("cpu"), verbose=False, allow_tqdm=False
    )
    predictor.initialize_from_trained_model_folder(str(model), (0,), "checkpoint_final.pth")
    _, probabilities = predictor.predict_single_npy_array(
        image, {"spacing": [1.0] * 3}, save_or_return_probabilities=True
    )
    return probabilities


def python_without_detaug(folder: Path) -> Path:
    """Make a virtual environment with this one's packages except detaug; return its Python.

    detaug is linked into this environment, and links of one environment are not followed from
    another.
    """
    venv.create(folder, with_pip=False, symlinks=True)
    paths = {"base": str(folder), "platbase": str(folder)}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    (packages / "others.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def test_an_exported_model_predicts_the_same_without_detaug(
    nnunet_environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = fold_of(nnunet_environment, tmp_path / "theirs").parent
    done = run("nnunet", "export", model)
    exported = Path(done.stdout.strip())
    assert done.exit_code == 0
    assert exported == model.with_name(model.name.replace("nnUNetTrainerDetAug", "nnUNetTrainer"))
    original_checkpoint = load_final(model)
    checkpoint = load_final(exported)
    assert checkpoint["trainer_name"] == "nnUNetTrainer"
    for name, weights in original_checkpoint["network_weights"].items():
        assert torch.equal(weights, checkpoint["network_weights"][name])

    image = np.random.default_rng(0).normal(size=(1, 20, 24, 28)).astype(np.float32)
    np.save(tmp_path / "image.npy", image)
    monkeypatch.setenv("nnUNet_extTrainer", run("nnunet", "path").stdout.strip())
    expected = predict_here(model, image)
    file = tmp_path / "predicted.npy"
    python = python_without_detaug(tmp_path / "venv")
    command = [python, "-I", "-c", PREDICT, exported, tmp_path / "image.npy", file]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    assert np.array_equal(np.load(file), expected)

    repeated = run("nnunet", "export", model)
    assert repeated.exit_code == 2
    assert "exists already" in repeated.output
    elsewhere = run("nnunet", "export", model, "-o", tmp_path / "new" / "model")
    assert elsewhere.exit_code == 0
    written = [path.name for path in (tmp_path / "new").iterdir()]
    assert written == ["model"], "nothing partial is left"


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
    assert equal.exit_code == 0
    assert equal.output == "equal (checkpoint_final.pth)\n"

    other = fold_of(nnunet_environment, tmp_path / "other", seed=2, train_losses=[-0.25, -0.3])
    different = run("diff", one, other)
    assert different.exit_code == 1
    assert "different: first of all in seed" in different.output
    assert "settings: seed: 1 and 2" in different.output
    assert "metrics from epoch 1 on: train_losses: -0.25 and -0.3" in different.output
    assert "weights: " in different.output


def test_cases_that_differ_between_trainings_are_named(
    nnunet_environment: Path, tmp_path: Path
) -> None:
    one = fold_of(nnunet_environment, tmp_path / "one")
    changed = {**CASES, "brain_001": "changed", "brain_003": "changed"}
    other = fold_of(nnunet_environment, tmp_path / "other", cases=changed)
    different = run("diff", one, other)
    assert different.exit_code == 1
    assert different.output.splitlines() == [
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
    messages = {
        damaged: "move it away, and checkpoint_best.pth beside it is used",
        one.parent: f"pass the folder of a fold: {one}",
        empty: "has no checkpoint (checkpoint_final.pth",
    }
    for other, message in messages.items():
        done = run("diff", one, other)
        assert done.exit_code == 2, done.output
        assert message in done.output
