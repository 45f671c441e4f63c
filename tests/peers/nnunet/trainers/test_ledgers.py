"""Ledgers of nnU-Net's trainings, beside the checkpoints."""

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


def detaug(*arguments: Any) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the training of `trained` is left."""
    return tmp_path_factory.mktemp("trained")


@pytest.fixture
def trained(nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, kept: Path) -> Path:
    """The folder of a training of two epochs, with ledgers; each has two and one batches. A copy of
    one made once.
    """
    monkeypatch.setenv("DETAUG_LEDGER", "1")
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


def test_ledgers_of_two_trainings_are_compared(trained: Path, tmp_path: Path) -> None:
    ledger = trained / "ledger_train.jsonl"

    def change(found: list[dict[str, Any]]) -> None:
        found[0]["data"]["brain_001"] = "another"
        found[4]["keys"]["target"] = "0" * 32

    other = rewritten(ledger, tmp_path / "other.jsonl", change, fitting=True)
    assert detaug("diff", ledger, ledger).output == "equal: all 4 batches\n"
    done = detaug("diff", ledger, other)
    assert done.exit_code == 1, done.output
    assert "epoch 1, step 0 is the first batch that differs, in 'target'" in done.output
    data = lines(ledger)[0]["data"]["brain_001"]
    assert f"data.brain_001: {data} in a, another in b" in done.output
