"""Checkpoints: equal trainings write equal files, and a training is only continued as itself."""

from __future__ import annotations

import os
import re
import shutil
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from nnunetv2.run.run_training import maybe_load_checkpoint
from nnunetv2.training.nnUNetTrainer.nnUNetTrainer import nnUNetTrainer
from torch.optim import lr_scheduler

from detaug import StateMismatch
from detaug.nnunet import trainers
from detaug.nnunet.trainers.output_folder import write_checkpoint
from tests.peers.nnunet.trainers.in_process import (
    CPU,
    Short,
    ShortDetAug,
    ShortDeterministic,
    initialized,
    new_trainer,
)

LOGGED = {
    "mean_fg_dice": [np.float64(0.25), np.float64(0.5)],
    "ema_fg_dice": [np.float64(0.25), np.float64(0.275)],
    "dice_per_class_or_region": [
        [np.float32(0.2), np.float32(0.3)],
        [np.float32(0.4), np.float32(0.6)],
    ],
    "train_losses": [np.float32(1), np.float32(0.5)],
    "val_losses": [np.float32(1), np.float32(0.75)],
    "lrs": [0.01, 0.005],
}


def trained(
    root: Path, trainer: type, times: tuple[float, ...] = (1e9, 2e9), epochs: int = 2
) -> Any:
    """A trainer as at the end of its second epoch, or of its first."""
    made = initialized(root, trainer)
    made.current_epoch = epochs - 1
    logged = {
        **LOGGED,
        "epoch_start_timestamps": list(times),
        "epoch_end_timestamps": [time + 1 for time in times],
    }
    made.logger.load_checkpoint({name: values[:epochs] for name, values in logged.items()})
    made._best_ema = LOGGED["ema_fg_dice"][epochs - 1]
    return made


def written(made: Any, name: str = "checkpoint_latest.pth") -> bytes:
    file = Path(made.output_folder) / name
    made.save_checkpoint(str(file))
    return file.read_bytes()


def test_times_names_and_reloading_change_no_byte(nnunet_environment: Path) -> None:
    made = trained(nnunet_environment, ShortDetAug)
    first = written(made)
    assert written(made, "checkpoint_final.pth") == first, "the name is not in it"
    assert written(trained(nnunet_environment, ShortDetAug, (3e9, 4e9))) == first, (
        "nor when it was trained"
    )
    again = new_trainer(nnunet_environment, ShortDetAug)
    again.load_checkpoint(str(Path(made.output_folder) / "checkpoint_final.pth"))
    again.current_epoch -= 1  # as nnU-Net's on_train_end
    assert written(again) == first, "nor whether its objects were computed or loaded"


class OwnBest(ShortDetAug):
    """Keeps the epoch with the least validation loss, in nnU-Net's own attribute."""

    def on_epoch_end(self) -> None:
        loss = float(self.logger.get_value("val_losses", step=-1))
        self.save_checkpoint(f"{self.output_folder}/checkpoint_latest.pth")
        if self._best_ema is None or -loss > self._best_ema:
            self._best_ema = -loss
            self.save_checkpoint(f"{self.output_folder}/checkpoint_best.pth")
        self.current_epoch += 1


AVERAGES = [None, *LOGGED["ema_fg_dice"]]


@pytest.mark.parametrize(
    ("trainer", "before", "after"),
    [
        (ShortDetAug, AVERAGES[:2], AVERAGES[1:]),
        (Short, AVERAGES[:2], AVERAGES[:2]),
        (OwnBest, [None, -1.0], [None, -1.0]),
    ],
)
def test_the_best_average_is_never_stale_and_one_of_the_trainers_own_is_left_alone(
    nnunet_environment: Path, trainer: type, before: list[Any], after: list[Any]
) -> None:
    """nnU-Net writes checkpoint_latest before it updates _best_ema; `after` is what it is when that
    is loaded.
    """
    for epochs in (1, 2):
        made = trained(nnunet_environment, trainer, epochs=epochs)
        made._best_ema = before[epochs - 1]
        made.num_epochs = 5
        made.on_epoch_end()
        again = new_trainer(nnunet_environment, trainer)
        again.load_checkpoint(str(Path(again.output_folder) / "checkpoint_latest.pth"))
        assert again._best_ema == after[epochs - 1]


def test_equal_values_have_equal_bytes_and_are_read_as_they_were(tmp_path: Path) -> None:
    name, number, tied = "name", np.float64(0.5), torch.arange(3.0)
    others = {"numbers": (1, 2.5, True, None, np.float32(3), np.int64(4)), "list": [[], {}, ()]}
    shared = OrderedDict(
        {name: number, "again": number, "other": [name, name]}, **others, a=tied, b=tied
    )
    apart = OrderedDict({"name": np.float64(0.5), "again": np.float64(0.5)})
    apart["other"] = ["name", "name"]
    apart.update(others, a=tied, b=tied)
    ours, plain = [], []
    for value in (shared, apart):
        value._metadata = {"version": 1}  # type: ignore[attr-defined]
        for save, found in ((write_checkpoint, ours), (torch.save, plain)):
            save(value, tmp_path / "file")
            found.append((tmp_path / "file").read_bytes())
    assert ours[0] == ours[1]
    assert plain[0] != plain[1], "torch.save's differ"
    write_checkpoint({**shared, "array": np.array([1, 2], ">i2")}, tmp_path / "file")
    read = torch.load(tmp_path / "file", weights_only=False)
    assert read["a"] is read["b"]
    assert torch.equal(read["a"], tied)
    assert [type(each) for each in read["numbers"]] == [type(each) for each in others["numbers"]]
    assert {name: read[name] for name in others} == others
    assert read["array"].tolist() == [1, 2]


# --- continuing
# ---------------------------------------------------------------------------------------------------------


class Drawing(ShortDetAug):
    """Its network draws numbers while it trains, as one with dropout does."""

    def train_step(self, batch: dict) -> dict:
        batch["data"] = batch["data"] * (torch.rand(()) + np.random.random())
        return super().train_step(batch)


#: Trainer -> its last checkpoint, and that of its first epoch.
_TRAINED: dict[type, tuple[bytes, bytes]] = {}


def straight(root: Path, trainer: type = Drawing) -> bytes:
    """checkpoint_final.pth of a training of two epochs, made once."""
    if trainer not in _TRAINED:
        after: list[bytes] = []

        class Kept(trainer):  # type: ignore[misc]
            def on_epoch_end(self) -> None:
                super().on_epoch_end()
                after.append((Path(self.output_folder) / "checkpoint_latest.pth").read_bytes())

        Kept.__name__ = trainer.__name__
        made = new_trainer(root, Kept)
        made.run_training()
        _TRAINED[trainer] = (
            (Path(made.output_folder) / "checkpoint_final.pth").read_bytes(),
            after[0],
        )
        shutil.rmtree(made.output_folder)
    return _TRAINED[trainer][0]


def interrupted(root: Path, trainer: type = Drawing) -> Path:
    """The last checkpoint of a training that ended after its first epoch of two."""
    straight(root, trainer)
    file = Path(new_trainer(root, trainer).output_folder) / "checkpoint_latest.pth"
    file.write_bytes(_TRAINED[trainer][1])
    return file


def continued(root: Path, file: Path, trainer: type = Drawing) -> bytes:
    made = new_trainer(root, trainer)
    made.load_checkpoint(str(file))
    made.run_training()
    return (Path(made.output_folder) / "checkpoint_final.pth").read_bytes()


@pytest.mark.parametrize("trainer", [Drawing, ShortDeterministic])
def test_two_epochs_are_one_and_one_continued(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, trainer: type
) -> None:
    """No random state is in a checkpoint: every epoch starts from its own."""
    file, wanted = interrupted(nnunet_environment, trainer), straight(nnunet_environment, trainer)
    monkeypatch.delenv("DETAUG_SEED")
    assert continued(nnunet_environment, file, trainer) == wanted
    assert (
        continued(nnunet_environment, file.with_name("checkpoint_final.pth"), trainer) == wanted
    ), "finished"


# --- schedules
# --------------------------------------------------------------------------------------------------------


class OwnSchedule(ShortDeterministic):
    """Steps a schedule that counts for itself, where nnU-Net's are told the epoch."""

    decay = 0.25

    def schedule_of(self, optimizer: Any) -> Any:
        raise NotImplementedError

    def configure_optimizers(self) -> Any:
        optimizer, _ = super().configure_optimizers()
        return optimizer, self.schedule_of(optimizer)


class Counts:
    """Before a schedule's class: the epoch that it is told changes nothing."""

    def step(self, _: Any = None) -> None:
        super().step()  # type: ignore[misc]


class CountingSequence(Counts, lr_scheduler.SequentialLR):
    pass


class CountingRestarts(Counts, lr_scheduler.CosineAnnealingWarmRestarts):
    pass


class CountingMilestones(Counts, lr_scheduler.MultiStepLR):
    pass


class Sequence(OwnSchedule):
    def schedule_of(self, optimizer: Any) -> Any:
        parts = [
            lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=3),
            lr_scheduler.ExponentialLR(optimizer, self.decay),
        ]
        return CountingSequence(optimizer, parts, milestones=[1])


class WarmRestarts(OwnSchedule):
    def schedule_of(self, optimizer: Any) -> Any:
        return CountingRestarts(optimizer, T_0=2, eta_min=self.decay / 100)


class Milestones(OwnSchedule):
    def schedule_of(self, optimizer: Any) -> Any:
        return CountingMilestones(optimizer, [1, 3], self.decay)


class SavesItsSchedule(WarmRestarts):
    """Saves and loads it itself."""

    def save_checkpoint(self, filename: str) -> None:
        super().save_checkpoint(filename)
        stored = torch.load(filename, weights_only=False)
        write_checkpoint({**stored, "schedule": self.lr_scheduler.state_dict()}, filename)

    def load_checkpoint(self, filename_or_checkpoint: Any) -> None:
        super().load_checkpoint(filename_or_checkpoint)
        stored = torch.load(filename_or_checkpoint, weights_only=False)
        self.lr_scheduler.load_state_dict(stored["schedule"])


@pytest.mark.parametrize("trainer", [Sequence, WarmRestarts, Milestones, SavesItsSchedule])
def test_a_schedule_that_counts_for_itself_goes_on(nnunet_environment: Path, trainer: type) -> None:
    file = interrupted(nnunet_environment, trainer)
    assert continued(nnunet_environment, file, trainer) == straight(nnunet_environment, trainer)


def test_a_schedule_that_was_changed_goes_on_where_it_was_with_its_new_settings(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = interrupted(nnunet_environment, WarmRestarts)
    made = new_trainer(nnunet_environment, WarmRestarts)
    made.decay = 0.5
    made.load_checkpoint(str(file))
    with pytest.raises(StateMismatch, match=r"schedule: eta_min: 0.0025 in the checkpoint, 0.005"):
        made.on_train_start()
    monkeypatch.setenv("DETAUG_ALLOW", "schedule")
    made.on_train_start()
    assert (made.lr_scheduler.T_cur, made.lr_scheduler.eta_min) == (1, 0.005)


# --- more trainers
# ----------------------------------------------------------------------------------------------------


def shortened(name: str, **settings: Any) -> type:
    """One of nnU-Net's trainers under detaug's name for it, with two epochs of two batches."""

    class Shortened(getattr(trainers, name)):  # type: ignore[misc]
        def __init__(
            self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
        ):
            plans["configurations"][configuration]["patch_size"] = [
                32,
                32,
                32,
            ]  # transformers want multiples of 8
            super().__init__(plans, configuration, fold, dataset_json, device)
            self.num_epochs, self.num_iterations_per_epoch, self.num_val_iterations_per_epoch = (
                2,
                2,
                1,
            )
            self.save_every = 1
            for attribute, value in settings.items():
                setattr(self, attribute, value)

    return Shortened


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "warmup"),
    [
        ("nnUNetTrainerDetAug_warmup", 1),
        ("nnUNetTrainerDeterministic_warmup", 5),
        ("nnUNet_Primus_S_TrainerDetAug", 1),
        ("nnUNet_PrimusV2S_TrainerDeterministic", 5),
    ],
)
def test_a_warm_up_is_continued_within_it_and_after_it(
    nnunet_environment: Path, name: str, warmup: int
) -> None:
    """nnU-Net's own `load_checkpoint` of these trainers fails: it asks for weights alone."""
    trainer = shortened(name, warmup_duration_whole_net=warmup)
    file = interrupted(nnunet_environment, trainer)
    assert continued(nnunet_environment, file, trainer) == straight(nnunet_environment, trainer)


@pytest.mark.slow
def test_three_threads_train_to_the_same_bytes_and_another_number_is_refused(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Threads(ShortDetAug):
        pass

    monkeypatch.setenv("DETAUG_CPU_THREADS", "3")
    before = torch.get_num_threads()
    try:
        file = interrupted(nnunet_environment, Threads)
        assert continued(nnunet_environment, file, Threads) == straight(nnunet_environment, Threads)
        monkeypatch.setenv("DETAUG_CPU_THREADS", "2")
        with pytest.raises(
            StateMismatch, match=r"cpu_threads: 3 in the checkpoint, 2 now \(set DETAUG_CPU_THREADS"
        ):
            continued(nnunet_environment, interrupted(nnunet_environment, Threads), Threads)
    finally:
        torch.set_num_threads(before)


def test_another_training_is_not_continued(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = interrupted(nnunet_environment)
    monkeypatch.setenv("DETAUG_SEED", "2")
    with pytest.raises(
        StateMismatch, match=r"seed: 1 in the checkpoint, 2 now \(unset DETAUG_SEED"
    ):
        continued(nnunet_environment, file)


def test_a_changed_data_set_is_not_continued(copied: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copied.parents[2]
    file = interrupted(root)
    shutil.copy(copied / "brain_001.b2nd", copied / "brain_002.b2nd")
    with pytest.raises(StateMismatch, match="preprocessed cases of this fold"):
        continued(root, file)
    monkeypatch.setenv("DETAUG_ALLOW", "data")
    continued(root, file)


def test_a_checkpoint_without_a_seed_is_continued_and_the_log_says_so(
    nnunet_environment: Path,
) -> None:
    made = trained(nnunet_environment, ShortDetAug)
    file = Path(made.output_folder) / "checkpoint_latest.pth"
    made.current_epoch = 0
    nnUNetTrainer.save_checkpoint(made, str(file))
    again = new_trainer(nnunet_environment, ShortDetAug)
    again.load_checkpoint(str(file))
    assert "no record of a seed" in Path(again.log_file).read_text()


def test_pretrained_weights_outlive_a_kill_before_the_first_checkpoint(
    nnunet_environment: Path,
) -> None:
    class Killed(ShortDetAug):
        def on_epoch_start(self) -> None:
            raise KeyboardInterrupt

    Killed.__name__ = ShortDetAug.__name__
    weights = Path(os.environ["nnUNet_results"]) / "weights.pth"
    made = trained(nnunet_environment, ShortDetAug)
    torch.nn.init.ones_(next(made.network.parameters()))
    torch.save({"network_weights": made.network.state_dict()}, weights)
    through = new_trainer(nnunet_environment, ShortDetAug)
    maybe_load_checkpoint(through, False, False, str(weights))
    through.run_training()
    final = Path(through.output_folder) / "checkpoint_final.pth"
    wanted = final.read_bytes()
    shutil.rmtree(through.output_folder)
    killed = new_trainer(nnunet_environment, Killed)
    maybe_load_checkpoint(killed, False, False, str(weights))
    with pytest.raises(KeyboardInterrupt):
        killed.run_training()
    again = new_trainer(nnunet_environment, ShortDetAug)
    maybe_load_checkpoint(again, True, False)
    again.run_training()
    assert final.read_bytes() == wanted
    assert torch.load(final, weights_only=False)["detaug"]["pretrained"]
    log = Path(again.log_file).read_text()
    assert re.search(r"detaug: \d+ batches were made twice and compared", log)


def test_what_was_allowed_is_in_all_later_checkpoints_and_an_old_final_one_is_told(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    made = trained(nnunet_environment, ShortDetAug, epochs=1)
    final, latest = (
        Path(made.output_folder) / f"checkpoint_{name}.pth" for name in ("final", "latest")
    )
    made.on_train_start()
    written(made)
    shutil.copy(latest, final)
    other = new_trainer(nnunet_environment, ShortDetAug)
    other.on_train_start()
    assert f"checkpoint_final.pth in {final.parent} is of an earlier training" in caplog.text
    final.unlink()

    again = new_trainer(nnunet_environment, ShortDetAug)
    again.weight_decay = 0.25
    maybe_load_checkpoint(again, True, False)
    with pytest.raises(StateMismatch, match="DETAUG_ALLOW=optimiser continues"):
        again.on_train_start()
    monkeypatch.setenv("DETAUG_ALLOW", "optimiser")
    again.run_training()
    (allowed,) = torch.load(final, weights_only=False)["detaug"]["allowed"]
    assert allowed == "epoch 1: optimiser: groups.0.weight_decay: 3e-05 in the checkpoint, 0.25 now"
    monkeypatch.delenv("DETAUG_ALLOW")
    later = new_trainer(nnunet_environment, ShortDetAug)
    later.weight_decay = 0.25
    maybe_load_checkpoint(later, True, False)
    later.on_train_start()
    assert later._record().allowed == [allowed]
