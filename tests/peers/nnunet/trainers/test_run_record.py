"""What a training is made of: every change is told by its name and both values, and what may change
is not.
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


def record_of(
    root: Path,
    change: Callable[[Any], None] = lambda trainer: None,
    trainer: type = ShortDetAug,
) -> RunRecord:
    """The record of a trainer at its start."""
    made = new_trainer(root, trainer)
    change(made)
    made.on_train_start()
    return made._record()


def setting(**changes: Any) -> Callable[[Any], None]:
    return lambda trainer: vars(trainer).update(changes)


class FewerTransforms(ShortDetAug):
    def get_dataloaders(self) -> Any:
        train, val = super().get_dataloaders()
        del train.generator.transforms.transforms[1]
        return train, val


class Changed(ShortDetAug):
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
    def configure_optimizers(self) -> Any:
        optimizer, _ = super().configure_optimizers()
        return optimizer, torch.optim.lr_scheduler.StepLR(optimizer, 3)


def told(root: Path, baseline: RunRecord, *changes: Any, **options: Any) -> str:
    with pytest.raises(StateMismatch) as raised:
        record_of(root, *changes, **options).check_continues(baseline)
    return str(raised.value)


def test_a_change_is_told_by_its_name_and_both_values(
    nnunet_environment: Path, baseline: RunRecord
) -> None:
    settings = {"initial_lr": 0.5, "num_epochs": 3, "oversample_foreground_percent": 0.5}
    change = setting(**settings, num_val_iterations_per_epoch=7)
    said = told(nnunet_environment, baseline, change, trainer=Changed)
    for line in (
        "plans: configurations.3d_fullres.batch_size: 2 in the checkpoint, 4 now",
        "schedule: initial_lr: 0.01 in the checkpoint, 0.5 now",
        "schedule: max_steps: 2 in the checkpoint, 3 now",
        "sampling: oversample_foreground_percent: 0.33 in the checkpoint, 0.5 now",
        "iterations: validation: 1 in the checkpoint, 7 now",
        "optimiser: groups.0.momentum: 0.99 in the checkpoint, 0 now",
        "weight_dice: 1 in the checkpoint, 3 now",
    ):
        assert line in said
    said = told(nnunet_environment, baseline, trainer=StepSchedule)
    assert "schedule: class: nnunetv2.training.lr_scheduler.polylr.PolyLRScheduler in" in said
    said = told(nnunet_environment, baseline, trainer=FewerTransforms)
    assert (
        "transforms.transforms: builtins.list of 11 in the checkpoint, builtins.list of 10 now"
        in said
    )


@pytest.fixture
def baseline(nnunet_environment: Path) -> RunRecord:
    """The record of the unchanged trainer, made once."""
    if not _BASELINE:
        _BASELINE.append(record_of(nnunet_environment))
    return _BASELINE[0]


_BASELINE: list[RunRecord] = []


class Exchanged(ShortDetAug):
    def do_split(self) -> Any:
        train, val = super().do_split()
        return [*train[1:], *val], train[:1]


def test_cases_exchanged_between_training_and_validation_are_told(
    nnunet_environment: Path, baseline: RunRecord
) -> None:
    said = told(nnunet_environment, baseline, trainer=Exchanged)
    assert "cases: training: brain_001 in the checkpoint, brain_000 now (splits_final.json" in said
    assert "cases: validation: brain_000 in the checkpoint, brain_001 now" in said


def test_the_order_in_the_split_file_decides_nothing(
    nnunet_environment: Path, baseline: RunRecord
) -> None:
    class Turned(ShortDetAug):
        def do_split(self) -> Any:
            train, val = super().do_split()
            return train[::-1], val

    assert record_of(nnunet_environment, trainer=Turned) == baseline


def test_processes_and_place_are_free(
    nnunet_environment: Path, baseline: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("nnUNet_n_proc_DA", "3")
    monkeypatch.setenv("DETAUG_LEDGER", "1")
    monkeypatch.setenv("nnUNet_results", str(tmp_path / "elsewhere"))
    (tmp_path / "preprocessed").symlink_to(nnunet_environment / "preprocessed")
    monkeypatch.setenv("nnUNet_preprocessed", str(tmp_path / "preprocessed"))
    again = record_of(nnunet_environment, setting(save_every=7))
    assert again == baseline
    assert str(tmp_path) not in json.dumps(asdict(again))


def test_epochs_are_free_where_the_schedule_does_not_read_their_number(
    nnunet_environment: Path,
) -> None:
    earlier = record_of(nnunet_environment, trainer=StepSchedule)
    longer = record_of(nnunet_environment, setting(num_epochs=9), trainer=StepSchedule)
    assert longer.check_continues(earlier) == []


def test_other_source_is_recorded_and_no_reason_to_refuse(baseline: RunRecord) -> None:
    assert baseline.source == source_digest()
    assert baseline.check_continues(replace(baseline, source="0123456789ab")) == []
    stored = baseline.as_dict()
    del stored["source"]  # as checkpoints were written before
    assert RunRecord.from_checkpoint({"detaug": stored}) == replace(baseline, source="")


def test_what_is_allowed_goes_on_and_is_told(
    baseline: RunRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    earlier = replace(baseline, versions={**baseline.versions, "torch": "1.0"}, world_size=4)
    monkeypatch.setenv("DETAUG_ALLOW", "versions")
    with pytest.raises(
        StateMismatch, match=r"(?s)world_size: 4 in .*DETAUG_ALLOW=versions,world_size continues"
    ) as raised:
        baseline.check_continues(earlier)
    assert "torch" not in str(raised.value)
    monkeypatch.setenv("DETAUG_ALLOW", " versions, world_size ")
    assert [each.split(" in ")[0] for each in baseline.check_continues(earlier)] == [
        "world_size: 4",
        "versions: torch: 1.0",
    ]
    for unknown in ("plan", "allowed", "1"):
        monkeypatch.setenv("DETAUG_ALLOW", unknown)
        with pytest.raises(
            ValueError,
            match=rf"DETAUG_ALLOW in the environment names '{unknown}'; it may name seed, ",
        ):
            baseline.check_continues(earlier)


#: Prints what a record written in another interpreter has of the machine.
MACHINE = """
import json
import torch
from detaug.nnunet.machine import machine_of
print(json.dumps(machine_of(torch.device("cpu"), torch.nn.Identity(), batches_vary=True)))
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
    cpu = json.loads(done.stdout)["cpu"]
    there = replace(baseline, machine={**baseline.machine, "cpu": cpu})
    here = torch.backends.cpu.get_cpu_capability()
    difference = f"machine: cpu.torch: {here} in the checkpoint, DEFAULT now"
    with pytest.raises(StateMismatch, match="DETAUG_ALLOW=machine continues") as raised:
        there.check_continues(baseline)
    assert difference in str(raised.value)
    monkeypatch.setenv("DETAUG_ALLOW", "machine")
    (allowed,) = there.check_continues(baseline)
    assert allowed.startswith(difference)


def test_the_machine_is_told_by_what_differs_of_it(baseline: RunRecord) -> None:
    cpu = baseline.machine["cpu"]
    machine = {**baseline.machine, "cpu": {**cpu, "numpy": [*cpu["numpy"], "AVX2048"]}}
    machine["cpu"]["model"] = "another one"
    with pytest.raises(StateMismatch) as raised:
        baseline.check_continues(replace(baseline, machine=machine))
    assert "machine: cpu.model: another one in the checkpoint, " in str(raised.value)
    assert "machine: cpu.numpy: AVX2048 in the checkpoint, no other now" in str(raised.value)


class Compiled(ShortDetAug):
    """nnU-Net compiles on GPUs only; torch can on a CPU as well."""

    def _do_i_compile(self) -> bool:
        return True


def test_compiling_precision_and_libraries_of_the_network_are_told(
    nnunet_environment: Path, baseline: RunRecord
) -> None:
    said = told(nnunet_environment, baseline, trainer=Compiled)
    assert "machine: compiled: False in the checkpoint, True now" in said
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        said = told(nnunet_environment, baseline)
    finally:
        torch.set_float32_matmul_precision(before)
    assert "machine: precision.torch.get_float32_matmul_precision: highest in the checkpoi" in said
    assert {"dynamic_network_architectures", "batchgenerators", "acvl_utils"} <= {
        *baseline.versions
    }


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU that torch can use here")
def test_on_a_gpu_the_processor_counts_where_it_makes_the_batches(
    nnunet_environment: Path,
) -> None:
    for trainer, counts in ((ShortDetAug, False), (ShortDeterministic, True)):
        made = new_trainer(nnunet_environment, trainer, device=torch.device("cuda"))
        made.on_train_start()
        machine = made._record().machine
        assert ("cpu" in machine) is counts
        assert machine["gpu"] == torch.cuda.get_device_name(0)
        assert machine["cudnn"] == torch.backends.cudnn.version()


def test_the_record_is_plain_json(baseline: RunRecord) -> None:
    plain = json.loads(json.dumps(asdict(baseline)))
    assert RunRecord.from_checkpoint({"detaug": plain}) == baseline
    assert RunRecord.from_checkpoint({}) is None


def test_schedules_within_a_schedule_are_told() -> None:
    def settings(gamma: float) -> Any:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], 0.1)
        parts = [
            torch.optim.lr_scheduler.ConstantLR(optimizer),
            torch.optim.lr_scheduler.ExponentialLR(optimizer, gamma),
        ]
        return schedule_settings(torch.optim.lr_scheduler.SequentialLR(optimizer, parts, [5]))

    assert settings(0.5) == settings(0.5) != settings(0.25)


@pytest.mark.parametrize(
    "damaged",
    [3, {}, {"seed": 1, "data": "0f"}, {"seed": 1, "loading": "detaug", "iterations": None}],
)
def test_a_record_of_another_version_is_refused_by_name(damaged: Any) -> None:
    with pytest.raises(StateMismatch, match="the version of detaug that wrote it"):
        RunRecord.from_checkpoint({"detaug": damaged})
