"""The record of what a training is made of.

A continued training names every change with both values, except what may change.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from nnunetv2.training.lr_scheduler.polylr import PolyLRScheduler

from detaug import StateMismatch
from detaug.nnunet.run_record import RunRecord, schedule_settings
from detaug.versions import source_digest
from tests.peers.nnunet.trainers.command_line import REPOSITORY
from tests.peers.nnunet.trainers.in_process import (
    CPU,
    ShortDetAug,
    ShortDeterministic,
    new_trainer,
)
from tests.support.waiting import run_program


def change_nothing(_: Any) -> None:
    """Leave a trainer as it is."""


def record_of(
    root: Path, change: Callable[[Any], None] = change_nothing, trainer: type = ShortDetAug
) -> RunRecord:
    """Return the record of a trainer at its start.

    Args:
        root: folder with nnU-Net's ``preprocessed``.
        change: changes the trainer before its start.
        trainer: its class.
    """
    starting = new_trainer(root, trainer)
    change(starting)
    starting.on_train_start()
    return starting._record()


def setting(**attributes: Any) -> Callable[[Any], None]:
    """Return a change that sets attributes."""

    def change(trainer: Any) -> None:
        for name, value in attributes.items():
            setattr(trainer, name, value)

    return change


class FewerTransforms(ShortDetAug):
    """A trainer that leaves out a transform."""

    def get_dataloaders(self) -> Any:
        train, val = super().get_dataloaders()
        del train.generator.transforms.transforms[1]
        return train, val


class Changed(ShortDetAug):
    """A trainer with another batch size, loss and optimiser."""

    def __init__(
        self, plans: dict, configuration: str, fold: int, dataset_json: dict, device: Any = CPU
    ):
        plans["configurations"]["3d_fullres"]["batch_size"] = 4
        super().__init__(plans, configuration, fold, dataset_json, device)

    def _build_loss(self) -> Any:
        loss = super()._build_loss()
        loss.loss.weight_dice = 3
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = torch.optim.SGD(
            self.network.parameters(), self.initial_lr, weight_decay=self.weight_decay
        )
        return optimizer, PolyLRScheduler(optimizer, self.initial_lr, self.num_epochs)


class StepSchedule(ShortDetAug):
    """A trainer with another schedule."""

    def configure_optimizers(self) -> Any:
        optimizer, _ = super().configure_optimizers()
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3)


def refusal(root: Path, baseline: RunRecord, *changes: Any, **options: Any) -> str:
    """Return the message that refuses to continue a training.

    Args:
        root: as for `record_of`.
        baseline: record of the training.
        changes: as for `record_of`.
        options: as for `record_of`.
    """
    record = record_of(root, *changes, **options)
    with pytest.raises(StateMismatch) as error:
        record.check_continues(baseline)
    return str(error.value)


def test_a_change_is_told_by_its_name_and_both_values(
    nnunet_environment: Path, baseline: RunRecord
) -> None:
    change = setting(
        initial_lr=0.5,
        num_epochs=3,
        oversample_foreground_percent=0.5,
        num_val_iterations_per_epoch=7,
    )
    message = refusal(nnunet_environment, baseline, change, trainer=Changed)
    for line in (
        "plans: configurations.3d_fullres.batch_size: 2 in the checkpoint, 4 now",
        "schedule: initial_lr: 0.01 in the checkpoint, 0.5 now",
        "schedule: max_steps: 2 in the checkpoint, 3 now",
        "sampling: oversample_foreground_percent: 0.33 in the checkpoint, 0.5 now",
        "iterations: validation: 1 in the checkpoint, 7 now",
        "optimiser: groups.0.momentum: 0.99 in the checkpoint, 0 now",
        "weight_dice: 1 in the checkpoint, 3 now",
    ):
        assert line in message
    message = refusal(nnunet_environment, baseline, trainer=StepSchedule)
    assert "schedule: class: nnunetv2.training.lr_scheduler.polylr.PolyLRScheduler in" in message
    message = refusal(nnunet_environment, baseline, trainer=FewerTransforms)
    lengths = "builtins.list of 11 in the checkpoint, builtins.list of 10 now"
    assert f"transforms.transforms: {lengths}" in message


@pytest.fixture
def baseline(nnunet_environment: Path) -> RunRecord:
    """Return the record of the unchanged trainer, which is made once."""
    if not _BASELINE:
        _BASELINE.append(record_of(nnunet_environment))
    return _BASELINE[0]


_BASELINE: list[RunRecord] = []


class Exchanged(ShortDetAug):
    """A trainer that exchanges a case for training and those for validation."""

    def do_split(self) -> Any:
        train, val = super().do_split()
        return [*train[1:], *val], train[:1]


def test_cases_exchanged_between_training_and_validation_are_told(
    nnunet_environment: Path, baseline: RunRecord
) -> None:
    message = refusal(nnunet_environment, baseline, trainer=Exchanged)
    training = "cases: training: brain_001 in the checkpoint, brain_000 now (splits_final.json"
    assert training in message
    assert "cases: validation: brain_000 in the checkpoint, brain_001 now" in message


def test_the_order_in_the_split_file_decides_nothing(
    nnunet_environment: Path, baseline: RunRecord
) -> None:
    class Reversed(ShortDetAug):
        def do_split(self) -> Any:
            train, val = super().do_split()
            return train[::-1], val

    assert record_of(nnunet_environment, trainer=Reversed) == baseline


def test_processes_and_place_are_free(
    nnunet_environment: Path, baseline: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("nnUNet_n_proc_DA", "3")
    monkeypatch.setenv("DETAUG_LEDGER", "1")
    monkeypatch.setenv("nnUNet_results", str(tmp_path / "elsewhere"))
    (tmp_path / "preprocessed").symlink_to(nnunet_environment / "preprocessed")
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "preprocessed"))
    record = record_of(nnunet_environment, setting(save_every=7))
    assert record == baseline
    assert str(tmp_path) not in json.dumps(asdict(record))


def test_epochs_are_free_where_the_schedule_does_not_read_their_number(
    nnunet_environment: Path,
) -> None:
    earlier = record_of(nnunet_environment, trainer=StepSchedule)
    longer = record_of(nnunet_environment, setting(num_epochs=9), trainer=StepSchedule)
    assert longer.check_continues(earlier) == []


def test_other_source_is_recorded_and_no_reason_to_refuse(baseline: RunRecord) -> None:
    assert baseline.source == source_digest()
    assert baseline.check_continues(replace(baseline, source="0123456789ab")) == []
    # Older checkpoints have no source.
    content = baseline.as_dict()
    del content["source"]
    assert RunRecord.from_checkpoint({"detaug": content}) == replace(baseline, source="")


def test_what_is_allowed_goes_on_and_is_told(
    baseline: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = replace(baseline, versions={**baseline.versions, "torch": "1.0"}, world_size=4)
    monkeypatch.setenv("DETAUG_ALLOW", "versions")
    message = r"(?s)world_size: 4 in .*DETAUG_ALLOW=versions,world_size continues"
    with pytest.raises(StateMismatch, match=message) as error:
        baseline.check_continues(earlier)
    assert "torch" not in str(error.value)
    monkeypatch.setenv("DETAUG_ALLOW", " versions, world_size ")
    world_size, torch_version = baseline.check_continues(earlier)
    assert world_size.startswith("world_size: 4 in ")
    assert torch_version.startswith("versions: torch: 1.0 in ")
    for unknown in ("plan", "allowed", "1"):
        monkeypatch.setenv("DETAUG_ALLOW", unknown)
        message = rf"DETAUG_ALLOW in the environment names '{unknown}'; it may name seed, "
        with pytest.raises(ValueError, match=message):
            baseline.check_continues(earlier)


#: A program that prints what a record has of the machine.
MACHINE = """
import json
import torch
from detaug.nnunet.machine import machine_of

machine = machine_of(torch.device("cpu"), torch.nn.Identity(), batches_vary=True)
print(json.dumps(machine))
"""


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() == "DEFAULT", reason="this CPU has no vector units"
)
def test_a_machine_with_other_vector_units_is_told_and_refused(
    baseline: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "ATEN_CPU_CAPABILITY": "default"}
    done = run_program([sys.executable, "-c", MACHINE], env=environment, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr
    other_cpu = json.loads(done.stdout)["cpu"]
    other = replace(baseline, machine={**baseline.machine, "cpu": other_cpu})
    capability = torch.backends.cpu.get_cpu_capability()
    difference = f"machine: cpu.torch: {capability} in the checkpoint, DEFAULT now"
    with pytest.raises(StateMismatch, match="DETAUG_ALLOW=machine continues") as error:
        other.check_continues(baseline)
    assert difference in str(error.value)
    monkeypatch.setenv("DETAUG_ALLOW", "machine")
    (allowed,) = other.check_continues(baseline)
    assert allowed.startswith(difference)


def test_the_machine_is_told_by_what_differs_of_it(baseline: RunRecord) -> None:
    cpu = baseline.machine["cpu"]
    other_cpu = {**cpu, "model": "another one", "numpy": [*cpu["numpy"], "AVX2048"]}
    other = replace(baseline, machine={**baseline.machine, "cpu": other_cpu})
    with pytest.raises(StateMismatch) as error:
        baseline.check_continues(other)
    message = str(error.value)
    assert "machine: cpu.model: another one in the checkpoint, " in message
    assert "machine: cpu.numpy: AVX2048 in the checkpoint, no other now" in message


class Compiled(ShortDetAug):
    """A trainer that compiles on a CPU, where nnU-Net does not."""

    def _do_i_compile(self) -> bool:
        return True


def test_compiling_precision_and_libraries_of_the_network_are_told(
    nnunet_environment: Path, baseline: RunRecord
) -> None:
    message = refusal(nnunet_environment, baseline, trainer=Compiled)
    assert "machine: compiled: False in the checkpoint, True now" in message
    precision_before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        message = refusal(nnunet_environment, baseline)
    finally:
        torch.set_float32_matmul_precision(precision_before)
    name = "precision.torch.get_float32_matmul_precision"
    assert f"machine: {name}: highest in the checkpoint" in message
    for library in ("dynamic_network_architectures", "batchgenerators", "acvl_utils"):
        assert library in baseline.versions


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use here")
def test_on_a_gpu_the_processor_counts_where_it_makes_the_batches(
    nnunet_environment: Path,
) -> None:
    for trainer, counts in ((ShortDetAug, False), (ShortDeterministic, True)):
        on_gpu = new_trainer(nnunet_environment, trainer, device=torch.device("cuda"))
        on_gpu.on_train_start()
        machine = on_gpu._record().machine
        assert ("cpu" in machine) is counts
        assert machine["gpu"] == torch.cuda.get_device_name(0)
        assert machine["cudnn"] == torch.backends.cudnn.version()


def test_the_record_is_plain_json(baseline: RunRecord) -> None:
    content = json.loads(json.dumps(asdict(baseline)))
    assert RunRecord.from_checkpoint({"detaug": content}) == baseline
    assert RunRecord.from_checkpoint({}) is None


def test_schedules_within_a_schedule_are_told() -> None:
    def settings(gamma: float) -> Any:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
        parts = [
            torch.optim.lr_scheduler.ConstantLR(optimizer),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma),
        ]
        return schedule_settings(torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [5]))

    assert settings(0.5) == settings(0.5)
    assert settings(0.5) != settings(0.25)


@pytest.mark.parametrize(
    "damaged",
    [3, {}, {"seed": 1, "data": "0f"}, {"seed": 1, "loading": "detaug", "iterations": None}],
)
def test_a_record_of_another_version_is_refused_by_name(damaged: Any) -> None:
    with pytest.raises(StateMismatch, match="the version of detaug that wrote it"):
        RunRecord.from_checkpoint({"detaug": damaged})
