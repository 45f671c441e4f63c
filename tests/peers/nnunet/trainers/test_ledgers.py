"""Ledgers of nnU-Net's trainings: beside the checkpoints, checked and replayed from the folder alone."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from detaug.cli import main
from detaug.ledger.receipt import make_receipt, sha256_of
from detaug.nnunet.run_record import recorded_in
from tests.peers.nnunet.trainers.in_process import ShortDetAug, new_trainer
from tests.support.ledgers.runs import kinds, lines, steps

EXTERNAL = Path(__file__).parent / "ledgers"
TRAINING = ("--nnunet", "1", "3d_fullres", "0", "-tr", "ShortDetAug")


def detaug(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the training of `trained` is left."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def trained(nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, kept: Path) -> Path:
    """The folder of a training of two epochs, with ledgers; each has two and one batches. A copy of one made once."""
    monkeypatch.setenv("DETAUG_LEDGER", "1")
    monkeypatch.setenv("nnUNet_extTrainer", str(EXTERNAL))
    made = new_trainer(nnunet_environment, ShortDetAug)
    folder = Path(made.output_folder)
    if not list(kept.iterdir()):
        made.run_training()
        shutil.copytree(folder, kept, dirs_exist_ok=True)
    else:
        shutil.copytree(kept, folder, dirs_exist_ok=True)
    return folder


def test_every_loader_keeps_a_ledger_beside_the_checkpoints(trained: Path) -> None:
    assert steps(trained / "ledger_train.jsonl") == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert steps(trained / "ledger_val.jsonl") == [(0, 0), (1, 0)]
    assert kinds(trained / "ledger_train.jsonl") == ["header", *["batch", "batch", "epoch"] * 2]
    header = lines(trained / "ledger_train.jsonl")[0]
    assert (header["seed"], header["name"]) == (1, "train")
    record = torch.load(trained / "checkpoint_final.pth", weights_only=False)["detaug"]
    assert header["data"] == record["data"]


def test_whether_ledgers_are_kept_is_1_or_0(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DETAUG_LEDGER", "yes")
    with pytest.raises(ValueError, match="DETAUG_LEDGER='yes' in the environment must be 1 or 0"):
        new_trainer(nnunet_environment, ShortDetAug).on_train_start()


def test_a_continued_training_goes_on_in_its_ledger(
    trained: Path, nnunet_environment: Path
) -> None:
    before = lines(trained / "ledger_train.jsonl")
    made = new_trainer(nnunet_environment, ShortDetAug)
    made.load_checkpoint(str(trained / "checkpoint_final.pth"))
    made.current_epoch = 1  # a checkpoint of the first epoch's end
    made.run_training()
    found = lines(trained / "ledger_train.jsonl")
    assert (found[:4], found[-1]) == (before[:4], before[-1])
    assert kinds(trained / "ledger_train.jsonl") == ["header", *["batch", "batch", "epoch"] * 2]


def test_a_receipt_is_checked_by_data_set_configuration_and_fold(
    trained: Path, tmp_path: Path
) -> None:
    for name in ("train", "val"):
        ledger, receipt = trained / f"ledger_{name}.jsonl", tmp_path / f"{name}.json"
        checkpoint = ("--checkpoint", trained / "checkpoint_final.pth")
        assert detaug("receipt", ledger, "-o", receipt, *checkpoint).exit_code == 0
        done = detaug(
            "check", receipt, "--ledger", ledger, *TRAINING, "--samples", "3", *checkpoint
        )
        assert done.exit_code == 0, done.output
        assert "as the receipt says" in done.output
    other = detaug("check", receipt, "--ledger", ledger, *TRAINING[:-1], "nnUNetTrainerDetAug")
    assert other.exit_code == 2
    assert (
        "this is another pipeline than the ledger's: batches_per_epoch: here 50, in the ledger 1"
        in other.output
    )


#: What is changed in a checkpoint's record, and what is told.
FORGED: dict[str, tuple[Any, str]] = {
    "seed": (6, "seed: 6 in forged.pth, 1 in the ledger"),
    "world_size": (2, "world_size: 2 in forged.pth, 1 in the ledger"),
    "pipeline": ({"train": []}, "pipeline: that of forged.pth is another"),
}


def test_a_checkpoint_of_another_training_has_no_receipt_with_this_ledger(
    trained: Path, tmp_path: Path
) -> None:
    checkpoint, ledger, forged = (
        trained / "checkpoint_final.pth",
        trained / "ledger_train.jsonl",
        tmp_path / "forged.pth",
    )
    stored = torch.load(checkpoint, weights_only=False)

    def refused(changed: dict[str, Any]) -> str:
        torch.save(changed, forged)
        done = detaug("receipt", ledger, "--checkpoint", forged)
        assert done.exit_code == 2, done.output
        return " ".join(done.output.split())

    assert "has no record of its training, which the ledger's has" in refused(
        {**stored, "detaug": None}
    )
    for part, (value, told) in reversed(FORGED.items()):
        assert told in refused({**stored, "detaug": {**stored["detaug"], part: value}})

    receipt = json.loads(detaug("receipt", ledger, "--checkpoint", checkpoint).output)
    receipt["checkpoints"] = {"forged.pth": sha256_of(forged)}
    (tmp_path / "forged.json").write_text(json.dumps(receipt))
    done = detaug(
        "check", tmp_path / "forged.json", "--ledger", ledger, *TRAINING, "--checkpoint", forged
    )
    assert (done.exit_code, "wrong: seed: 6 in forged.pth" in done.output) == (1, True), done.output


def test_a_checkpoints_record_is_read_and_none_of_its_code_is_run(
    trained: Path, tmp_path: Path
) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "run",))

    stored = torch.load(trained / "checkpoint_final.pth", weights_only=False)
    assert recorded_in(trained / "checkpoint_final.pth") == stored["detaug"]
    torch.save({**stored, "hostile": Hostile()}, tmp_path / "hostile.pth")
    (tmp_path / "weights.pth").write_bytes(b"weights")
    assert recorded_in(tmp_path / "hostile.pth") is recorded_in(tmp_path / "weights.pth") is None
    assert not (tmp_path / "run").exists()


def test_other_and_changed_cases_are_named_and_exit_with_2(
    trained: Path, copied: Path, tmp_path: Path
) -> None:
    ledger, receipt = trained / "ledger_val.jsonl", tmp_path / "receipt.json"
    receipt.write_text(json.dumps(make_receipt(ledger)))
    for place, why in (
        (("9", "3d_fullres", "0"), "there is no preprocessed data set '9'"),
        (
            ("1", "3d_fullres", "7"),
            "data_loader.data.identifiers: here ['brain_003'], in the ledger ['brain_000']",
        ),
    ):
        other = detaug("check", receipt, "--ledger", ledger, "--nnunet", *place)
        assert (other.exit_code, why in other.output) == (2, True), other.output
    moved = detaug("check", receipt, "--ledger", ledger, *TRAINING)
    assert moved.exit_code == 0, f"another folder is no other pipeline: {moved.output}"
    cases = sorted(copied.glob("*.b2nd"))
    shutil.copy(cases[0], cases[2])
    for done in (
        detaug("check", receipt, "--ledger", ledger, *TRAINING),
        detaug("replay", trained, "--epoch", "1", "--step", "0"),
    ):
        assert done.exit_code == 2, done.output
        assert "the preprocessed cases of this fold are not those of the training" in done.output


def test_a_batch_is_replayed_from_the_folder_alone(
    trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DETAUG_SEED")
    before = {file: file.read_bytes() for file in trained.iterdir()}
    arguments = ("replay", trained, "--epoch", "1")
    done = detaug(*arguments, "--step", "1")
    assert done.exit_code == 0, done.output
    assert "SpatialTransform: affine=" in done.output
    assert "as the ledger has it" in done.output
    assert {file: file.read_bytes() for file in trained.iterdir()} == before, (
        "nothing is written there"
    )
    for name in ("train", "val"):
        (trained / f"ledger_{name}.jsonl").unlink()
    done = detaug(*arguments, "--step", "1")
    assert done.exit_code == 0, done.output
    assert "there is no ledger to compare it with" in done.output


def test_folders_that_cannot_be_replayed_exit_with_2(trained: Path, tmp_path: Path) -> None:
    stored = torch.load(trained / "checkpoint_final.pth", weights_only=False)
    torch.save({**stored, "detaug": None}, tmp_path / "checkpoint_final.pth")
    for folder, why in (
        (trained.parent, f"give the folder of a fold: {trained}"),
        (tmp_path, "has no seed: it is not of one of detaug's trainers"),
    ):
        done = detaug("replay", folder, "--epoch", "0", "--step", "0")
        assert (done.exit_code, why in done.output) == (2, True), done.output
