"""nnU-Net's trainings keep ledgers next to the checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner, Result

from detaug.tools.cli import main
from tests.peers.nnunet.trainers.in_process import ShortDetAug, new_trainer
from tests.support.ledgers.runs import kinds, lines, rewritten, steps

#: Kinds of the lines of two epochs of two batches.
TWO_EPOCHS = ["header", "batch", "batch", "epoch", "batch", "batch", "epoch"]


def diff(one: Path, other: Path) -> Result:
    """Run `detaug diff` on two ledgers."""
    return CliRunner().invoke(main, ["diff", str(one), str(other)])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder where `trained` keeps its training."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def trained(nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, kept: Path) -> Path:
    """Return the folder of a training of two epochs with ledgers.

    An epoch has two batches for training and one for validation. The training is run once; later
    tests get a copy.
    """
    monkeypatch.setenv("DETAUG_LEDGER", "1")
    trainer = new_trainer(nnunet_environment, ShortDetAug)
    folder = Path(trainer.output_folder)
    if list(kept.iterdir()):
        shutil.copytree(kept, folder, dirs_exist_ok=True)
    else:
        trainer.run_training()
        shutil.copytree(folder, kept, dirs_exist_ok=True)
    return folder


def test_every_loader_keeps_a_ledger_beside_the_checkpoints(trained: Path) -> None:
    ledger = trained / "ledger_train.jsonl"
    assert steps(ledger) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert kinds(ledger) == TWO_EPOCHS
    assert steps(trained / "ledger_val.jsonl") == [(0, 0), (1, 0)]
    header = lines(ledger)[0]
    assert header["seed"] == 1
    assert header["name"] == "train"
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
    ledger = trained / "ledger_train.jsonl"
    lines_before = lines(ledger)
    trainer = new_trainer(nnunet_environment, ShortDetAug)
    trainer.load_checkpoint(str(trained / "checkpoint_final.pth"))
    # As if the checkpoint were of the first epoch's end.
    trainer.current_epoch = 1
    trainer.run_training()
    lines_after = lines(ledger)
    assert lines_after[:4] == lines_before[:4]
    assert lines_after[-1] == lines_before[-1]
    assert kinds(ledger) == TWO_EPOCHS


def test_ledgers_of_two_trainings_are_compared(trained: Path, tmp_path: Path) -> None:
    ledger = trained / "ledger_train.jsonl"

    def change(content: list[dict[str, Any]]) -> None:
        content[0]["data"]["brain_001"] = "another"
        content[4]["keys"]["target"] = "0" * 32

    other = rewritten(ledger, tmp_path / "other.jsonl", change, fitting=True)
    assert diff(ledger, ledger).output == "equal: all 4 batches\n"
    done = diff(ledger, other)
    assert done.exit_code == 1, done.output
    assert "epoch 1, step 0 is the first batch that differs, in 'target'" in done.output
    data = lines(ledger)[0]["data"]["brain_001"]
    assert f"data.brain_001: {data} in a, another in b" in done.output
