"""Equal trainings write equal checkpoints, and a training is only continued as itself."""

from __future__ import annotations

import os
import re
import shutil
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

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

#: What a trainer has logged in two epochs.
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
    """Return a trainer as it is at the end of an epoch.

    Args:
        root: folder with nnU-Net's ``preprocessed``.
        trainer: its class.
        times: when the epochs began, in seconds.
        epochs: 1 or 2, the number of epochs.
    """
    result = initialized(root, trainer)
    result.current_epoch = epochs - 1
    logged = {
        **LOGGED,
        "epoch_start_timestamps": list(times),
        "epoch_end_timestamps": [time + 1 for time in times],
    }
    result.logger.load_checkpoint({name: values[:epochs] for name, values in logged.items()})
    result._best_ema = LOGGED["ema_fg_dice"][epochs - 1]
    return result


def checkpoint_in(trainer: Any, name: str) -> Path:
    """Return the path of a checkpoint ("latest", "best", "final") in a trainer's folder."""
    return Path(trainer.output_folder) / f"checkpoint_{name}.pth"


def written(trainer: Any, name: str = "latest") -> bytes:
    """Save a trainer's checkpoint and return its content."""
    file = checkpoint_in(trainer, name)
    trainer.save_checkpoint(str(file))
    return file.read_bytes()


def test_times_names_and_reloading_change_no_byte(nnunet_environment: Path) -> None:
    trainer = trained(nnunet_environment, ShortDetAug)
    expected = written(trainer)
    assert written(trainer, "final") == expected, "the name is not in it"
    trained_later = trained(nnunet_environment, ShortDetAug, (3e9, 4e9))
    assert written(trained_later) == expected, "nor when it was trained"
    reloaded = new_trainer(nnunet_environment, ShortDetAug)
    reloaded.load_checkpoint(str(checkpoint_in(trainer, "final")))
    # nnU-Net's on_train_end does the same before it saves.
    reloaded.current_epoch -= 1
    assert written(reloaded) == expected, "nor whether its objects were computed or loaded"


class OwnBest(ShortDetAug):
    """A trainer that keeps the lowest validation loss in nnU-Net's attribute of the best Dice."""

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
    """nnU-Net writes checkpoint_latest before it updates _best_ema.

    Args:
        nnunet_environment: folder of the data sets.
        trainer: its class.
        before: _best_ema before the end of each epoch.
        after: _best_ema after checkpoint_latest of that epoch was loaded.
    """
    for epochs in (1, 2):
        ending = trained(nnunet_environment, trainer, epochs=epochs)
        ending._best_ema = before[epochs - 1]
        ending.num_epochs = 5
        ending.on_epoch_end()
        reloaded = new_trainer(nnunet_environment, trainer)
        reloaded.load_checkpoint(str(checkpoint_in(reloaded, "latest")))
        assert reloaded._best_ema == after[epochs - 1]


#: Values of other types than those that are shared below.
OTHERS = {"numbers": (1, 2.5, True, None, np.float32(3), np.int64(4)), "list": [[], {}, ()]}


def with_shared_objects(tensor: torch.Tensor) -> OrderedDict[str, Any]:
    """Return values in which a text and a number occur several times as one object."""
    text = "name"
    number = np.float64(0.5)
    values = OrderedDict({text: number, "again": number, "other": [text, text]})
    values.update(OTHERS, a=tensor, b=tensor)
    return values


def with_separate_objects(tensor: torch.Tensor) -> OrderedDict[str, Any]:
    """Return equal values in which each occurrence is an object of its own."""
    values = OrderedDict({"name": np.float64(0.5), "again": np.float64(0.5)})
    values["other"] = ["name", "name"]
    values.update(OTHERS, a=tensor, b=tensor)
    return values


def test_equal_values_have_equal_bytes_and_are_read_as_they_were(tmp_path: Path) -> None:
    tensor = torch.arange(3.0)
    shared = with_shared_objects(tensor)
    separate = with_separate_objects(tensor)
    for values in (shared, separate):
        # As torch's state dicts have it.
        values._metadata = {"version": 1}  # type: ignore[attr-defined]

    def saved(save: Callable[..., None], values: Any) -> bytes:
        save(values, tmp_path / "file")
        return (tmp_path / "file").read_bytes()

    assert saved(write_checkpoint, shared) == saved(write_checkpoint, separate)
    assert saved(torch.save, shared) != saved(torch.save, separate), "torch.save's differ"

    write_checkpoint({**shared, "array": np.array([1, 2], ">i2")}, tmp_path / "file")
    read = torch.load(tmp_path / "file", weights_only=False)
    assert read["a"] is read["b"]
    assert torch.equal(read["a"], tensor)
    assert [type(number) for number in read["numbers"]] == [type(n) for n in OTHERS["numbers"]]
    for key, value in OTHERS.items():
        assert read[key] == value
    assert read["array"].tolist() == [1, 2]


# --- continuing


class Drawing(ShortDetAug):
    """A trainer that draws numbers while it trains, as a network with dropout does."""

    def train_step(self, batch: dict) -> dict:
        batch["data"] = batch["data"] * (torch.rand(()) + np.random.random())
        return super().train_step(batch)


class Contents(NamedTuple):
    """Contents of a training's checkpoints.

    Attributes:
        final: checkpoint_final.pth.
        after_first_epoch: checkpoint_latest.pth at the end of the first epoch.
    """

    final: bytes
    after_first_epoch: bytes


#: What trainings of two epochs have written, by class; each class is trained once.
_TRAINED: dict[type, Contents] = {}


def contents_of(root: Path, trainer: type) -> Contents:
    """Return what a training of two epochs writes."""
    if trainer in _TRAINED:
        return _TRAINED[trainer]
    latest: list[bytes] = []

    class Keeping(trainer):  # type: ignore[misc]
        def on_epoch_end(self) -> None:
            super().on_epoch_end()
            latest.append(checkpoint_in(self, "latest").read_bytes())

    # The name is that of the results folder.
    Keeping.__name__ = trainer.__name__
    training = new_trainer(root, Keeping)
    training.run_training()
    _TRAINED[trainer] = Contents(checkpoint_in(training, "final").read_bytes(), latest[0])
    shutil.rmtree(training.output_folder)
    return _TRAINED[trainer]


def straight(root: Path, trainer: type = Drawing) -> bytes:
    """Return checkpoint_final.pth of a training of two epochs."""
    return contents_of(root, trainer).final


def interrupted(root: Path, trainer: type = Drawing) -> Path:
    """Write the last checkpoint of a training that ended after its first epoch; return the path."""
    content = contents_of(root, trainer).after_first_epoch
    file = checkpoint_in(new_trainer(root, trainer), "latest")
    file.write_bytes(content)
    return file


def continued(root: Path, file: Path, trainer: type = Drawing) -> bytes:
    """Train from a checkpoint to the end and return checkpoint_final.pth."""
    training = new_trainer(root, trainer)
    training.load_checkpoint(str(file))
    training.run_training()
    return checkpoint_in(training, "final").read_bytes()


@pytest.mark.parametrize("trainer", [Drawing, ShortDeterministic])
def test_two_epochs_are_one_and_one_continued(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, trainer: type
) -> None:
    """Checkpoints hold no random state: every epoch starts from its own."""
    latest = interrupted(nnunet_environment, trainer)
    final = latest.with_name("checkpoint_final.pth")
    expected = straight(nnunet_environment, trainer)
    monkeypatch.delenv("DETAUG_SEED")
    assert continued(nnunet_environment, latest, trainer) == expected
    assert continued(nnunet_environment, final, trainer) == expected, "it was finished already"


# --- schedules


class OwnSchedule(ShortDeterministic):
    """A trainer whose schedule counts for itself, while nnU-Net's are passed the epoch."""

    decay = 0.25

    def schedule_of(self, optimizer: Any) -> Any:
        """Return the schedule."""
        raise NotImplementedError

    def configure_optimizers(self) -> Any:
        optimizer, _ = super().configure_optimizers()
        return optimizer, self.schedule_of(optimizer)


class Counts:
    """A mixin of schedules that ignores the epoch that it is passed."""

    def step(self, _: Any = None) -> None:
        super().step()  # type: ignore[misc]


class CountingSequence(Counts, lr_scheduler.SequentialLR):
    """A sequence of schedules that counts for itself."""


class CountingRestarts(Counts, lr_scheduler.CosineAnnealingWarmRestarts):
    """A schedule of warm restarts that counts for itself."""


class CountingMilestones(Counts, lr_scheduler.MultiStepLR):
    """A schedule of milestones that counts for itself."""


class Sequence(OwnSchedule):
    """A trainer with a sequence of schedules."""

    def schedule_of(self, optimizer: Any) -> Any:
        parts = [
            lr_scheduler.ConstantLR(optimizer, 0.5, total_iters=3),
            lr_scheduler.ExponentialLR(optimizer, self.decay),
        ]
        return CountingSequence(optimizer, parts, milestones=[1])


class WarmRestarts(OwnSchedule):
    """A trainer with a schedule of warm restarts."""

    def schedule_of(self, optimizer: Any) -> Any:
        return CountingRestarts(optimizer, T_0=2, eta_min=self.decay / 100)


class Milestones(OwnSchedule):
    """A trainer with a schedule of milestones."""

    def schedule_of(self, optimizer: Any) -> Any:
        return CountingMilestones(optimizer, [1, 3], self.decay)


class SavesItsSchedule(WarmRestarts):
    """A trainer that saves and loads the schedule itself."""

    def save_checkpoint(self, filename: str) -> None:
        super().save_checkpoint(filename)
        content = torch.load(filename, weights_only=False)
        write_checkpoint({**content, "schedule": self.lr_scheduler.state_dict()}, filename)

    def load_checkpoint(self, filename_or_checkpoint: Any) -> None:
        super().load_checkpoint(filename_or_checkpoint)
        content = torch.load(filename_or_checkpoint, weights_only=False)
        self.lr_scheduler.load_state_dict(content["schedule"])


@pytest.mark.parametrize("trainer", [Sequence, WarmRestarts, Milestones, SavesItsSchedule])
def test_a_schedule_that_counts_for_itself_goes_on(nnunet_environment: Path, trainer: type) -> None:
    file = interrupted(nnunet_environment, trainer)
    assert continued(nnunet_environment, file, trainer) == straight(nnunet_environment, trainer)


def test_a_schedule_that_was_changed_goes_on_where_it_was_with_its_new_settings(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = interrupted(nnunet_environment, WarmRestarts)
    trainer = new_trainer(nnunet_environment, WarmRestarts)
    trainer.decay = 0.5
    trainer.load_checkpoint(str(file))
    with pytest.raises(StateMismatch, match=r"schedule: eta_min: 0.0025 in the checkpoint, 0.005"):
        trainer.on_train_start()
    monkeypatch.setenv("DETAUG_ALLOW", "schedule")
    trainer.on_train_start()
    assert trainer.lr_scheduler.T_cur == 1
    assert trainer.lr_scheduler.eta_min == 0.005


# --- more trainers


def shortened(name: str, **settings: Any) -> type:
    """Return one of detaug's variants of nnU-Net's trainers, with two epochs of two batches.

    Args:
        name: detaug's name.
        settings: attributes.
    """

    class Shortened(getattr(trainers, name)):  # type: ignore[misc]
        def __init__(
            self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
        ):
            # Transformers require multiples of 8.
            plans["configurations"][configuration]["patch_size"] = [32, 32, 32]
            super().__init__(plans, configuration, fold, dataset_json, device)
            self.num_epochs = 2
            self.num_iterations_per_epoch = 2
            self.num_val_iterations_per_epoch = 1
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
    """nnU-Net's own `load_checkpoint` of these trainers fails, since it loads with weights_only."""
    trainer = shortened(name, warmup_duration_whole_net=warmup)
    file = interrupted(nnunet_environment, trainer)
    assert continued(nnunet_environment, file, trainer) == straight(nnunet_environment, trainer)


@pytest.mark.slow
def test_three_threads_train_to_the_same_bytes_and_another_number_is_refused(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Threads(ShortDetAug):
        """A class of its own, since its checkpoints are kept by class."""

    monkeypatch.setenv("DETAUG_CPU_THREADS", "3")
    threads_before = torch.get_num_threads()
    message = r"cpu_threads: 3 in the checkpoint, 2 now \(set DETAUG_CPU_THREADS"
    try:
        file = interrupted(nnunet_environment, Threads)
        assert continued(nnunet_environment, file, Threads) == straight(nnunet_environment, Threads)
        monkeypatch.setenv("DETAUG_CPU_THREADS", "2")
        with pytest.raises(StateMismatch, match=message):
            continued(nnunet_environment, interrupted(nnunet_environment, Threads), Threads)
    finally:
        torch.set_num_threads(threads_before)


def test_another_training_is_not_continued(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = interrupted(nnunet_environment)
    monkeypatch.setenv("DETAUG_SEED", "2")
    message = r"seed: 1 in the checkpoint, 2 now \(unset DETAUG_SEED"
    with pytest.raises(StateMismatch, match=message):
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
    trainer = trained(nnunet_environment, ShortDetAug)
    file = checkpoint_in(trainer, "latest")
    trainer.current_epoch = 0
    nnUNetTrainer.save_checkpoint(trainer, str(file))
    reloaded = new_trainer(nnunet_environment, ShortDetAug)
    reloaded.load_checkpoint(str(file))
    assert "no record of a seed" in Path(reloaded.log_file).read_text()


def test_pretrained_weights_outlive_a_kill_before_the_first_checkpoint(
    nnunet_environment: Path,
) -> None:
    class Killed(ShortDetAug):
        def on_epoch_start(self) -> None:
            raise KeyboardInterrupt

    Killed.__name__ = ShortDetAug.__name__
    weights = Path(os.environ["nnUNet_results"]) / "weights.pth"
    pretrained = trained(nnunet_environment, ShortDetAug)
    torch.nn.init.ones_(next(pretrained.network.parameters()))
    torch.save({"network_weights": pretrained.network.state_dict()}, weights)

    whole = new_trainer(nnunet_environment, ShortDetAug)
    maybe_load_checkpoint(whole, False, False, str(weights))
    whole.run_training()
    final = checkpoint_in(whole, "final")
    expected = final.read_bytes()
    shutil.rmtree(whole.output_folder)

    killed = new_trainer(nnunet_environment, Killed)
    maybe_load_checkpoint(killed, False, False, str(weights))
    with pytest.raises(KeyboardInterrupt):
        killed.run_training()
    resumed = new_trainer(nnunet_environment, ShortDetAug)
    maybe_load_checkpoint(resumed, True, False)
    resumed.run_training()
    assert final.read_bytes() == expected
    assert torch.load(final, weights_only=False)["detaug"]["pretrained"]
    log = Path(resumed.log_file).read_text()
    assert re.search(r"detaug: \d+ batches were made twice and compared", log)


def test_what_was_allowed_is_in_all_later_checkpoints_and_an_old_final_one_is_told(
    nnunet_environment: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first = trained(nnunet_environment, ShortDetAug, epochs=1)
    final = checkpoint_in(first, "final")
    first.on_train_start()
    final.write_bytes(written(first, "latest"))
    second = new_trainer(nnunet_environment, ShortDetAug)
    second.on_train_start()
    assert f"checkpoint_final.pth in {final.parent} is of an earlier training" in caplog.text
    final.unlink()

    changed = new_trainer(nnunet_environment, ShortDetAug)
    changed.weight_decay = 0.25
    maybe_load_checkpoint(changed, True, False)
    with pytest.raises(StateMismatch, match="DETAUG_ALLOW=optimiser continues"):
        changed.on_train_start()
    monkeypatch.setenv("DETAUG_ALLOW", "optimiser")
    changed.run_training()
    (allowed,) = torch.load(final, weights_only=False)["detaug"]["allowed"]
    assert allowed == "epoch 1: optimiser: groups.0.weight_decay: 3e-05 in the checkpoint, 0.25 now"

    monkeypatch.delenv("DETAUG_ALLOW")
    later = new_trainer(nnunet_environment, ShortDetAug)
    later.weight_decay = 0.25
    maybe_load_checkpoint(later, True, False)
    later.on_train_start()
    assert later._record().allowed == [allowed]
