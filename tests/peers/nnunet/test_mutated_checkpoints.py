"""A checkpoint that a fault or somebody has changed: `detaug diff` and `--c` say so in a line, and
run none of its code.
"""

from __future__ import annotations

import os
import random
import zipfile
from collections import OrderedDict
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from detaug.errors import StateMismatch
from detaug.nnunet.run_record import RunRecord
from detaug.tools.cli import main
from tests.support.mutations import check_ending, mutated_bytes, mutated_value

pytest.importorskip("nnunetv2")

RECORD = RunRecord(
    seed=1,
    loading="detaug",
    data={"brain_000": "0" * 32, "brain_001": "1" * 32},
    cases={"train": ["brain_001"], "val": ["brain_000"]},
    plans={"configurations": {"3d_fullres": {"batch_size": 2, "patch_size": [28, 28, 28]}}},
    labels={"labels": {"background": 0, "brain": 1}, "regions_class_order": None},
    pipeline={"train": ["data_loader = PatchSource", "transform = None"], "val": []},
    sampling={"oversample": 0.33},
    optimiser={"class": "torch.optim.sgd.SGD", "groups": [{"lr": 0.01}]},
    schedule={"class": "PolyLRScheduler", "initial_lr": 0.01},
    loss={"class": "DC_and_CE_loss"},
    iterations={"train": 250, "val": 50},
    world_size=1,
    cpu_threads=2,
    machine={"device": "cpu"},
)


def checkpoint() -> dict[str, Any]:
    """What nnU-Net and detaug write, small."""
    return {
        "network_weights": OrderedDict(a=torch.arange(6.0).reshape(2, 3), b=torch.ones(4)),
        "optimizer_state": {"state": {}, "param_groups": [{"lr": 0.01, "params": [0, 1]}]},
        "grad_scaler_state": None,
        "logging": {
            "train_losses": [np.float32(0.5), np.float32(0.25)],
            "ema_fg_dice": [np.float64(0.1), np.float64(0.2)],
            "dice_per_class_or_region": [[np.float64(0.1)], [0.2]],
        },
        "_best_ema": np.float64(0.2),
        "current_epoch": 2,
        "init_args": {
            "plans": {"dataset_name": "Dataset001", "continue_training": False},
            "configuration": "3d_fullres",
            "fold": 0,
            "dataset_json": {"labels": {"background": 0}},
            "device": torch.device("cpu"),
        },
        "trainer_name": "nnUNetTrainerDetAug",
        "inference_allowed_mirroring_axes": (0, 1, 2),
        "detaug": asdict(RECORD),
    }


#: What is mutated value by value; the rest, torch's own, byte by byte.
PARTS = ("logging", "init_args", "trainer_name", "detaug")


def saved(folder: Path, stored: Any) -> Path:
    folder.mkdir(exist_ok=True)
    torch.save(stored, folder / "checkpoint_final.pth")
    return folder


def diff(one: Path, other: Path, *more: str) -> Result:
    return CliRunner().invoke(main, ["diff", str(one), str(other), *more])


def read_mutated(folder: Path, seed: int) -> None:
    """Mutate a checkpoint and compare it with a whole one."""
    draw = random.Random(seed)
    one = saved(folder / "one", checkpoint())
    other = folder / "other"
    if draw.random() < 0.4:
        saved(other, checkpoint())
        file = other / "checkpoint_final.pth"
        file.write_bytes(mutated_bytes(file.read_bytes(), draw))
    else:
        stored = checkpoint()
        parts = mutated_value({name: stored[name] for name in PARTS}, draw)
        for name in PARTS:
            del stored[name]
        saved(other, {**stored, **parts})
    check_ending(diff(one, other))


def continue_mutated(seed: int) -> None:
    """Mutate a record and let it be continued: it is refused in words that a terminal shows, or is
    the same.
    """
    stored = mutated_value({"detaug": asdict(RECORD)}, random.Random(seed))
    try:
        record = RunRecord.from_checkpoint(stored)
        lines = [] if record is None else RECORD.check_continues(record)
    except StateMismatch as error:
        lines = str(error).split("\n")
    assert all(line.isprintable() for line in lines), lines


def test_every_mutation_ends_with_a_verdict_or_a_line(tmp_path: Path) -> None:
    for seed in range(150):
        read_mutated(tmp_path, seed)


def test_every_mutated_record_is_refused_or_continued(tmp_path: Path) -> None:
    for seed in range(400):
        continue_mutated(seed)


@pytest.mark.slow
def test_a_thousand_mutations_end_with_a_verdict_or_a_line(tmp_path: Path) -> None:
    for seed in range(1000, 1600):
        read_mutated(tmp_path, seed)
    for seed in range(1000, 1400):
        continue_mutated(seed)


def test_whole_checkpoints_are_equal(tmp_path: Path) -> None:
    done = diff(saved(tmp_path / "one", checkpoint()), saved(tmp_path / "other", checkpoint()))
    assert (done.exit_code, done.output) == (0, "equal (checkpoint_final.pth)\n")


class Hostile:
    """Runs code where it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.file),))


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", checkpoint())
    for place in ("detaug", "network_weights", "hostile"):
        other = saved(tmp_path / "other", {**checkpoint(), place: Hostile(tmp_path / "run")})
        done = diff(one, other)
        assert done.exit_code == 2, done.output
        assert "holds a posix.mkdir, which is neither torch's nor NumPy's" in done.output
    assert not (tmp_path / "run").exists()


def test_containers_that_hold_themselves_are_refused(tmp_path: Path) -> None:
    """By one reference, and by so many that a walk would not end."""
    one = saved(tmp_path / "one", checkpoint())
    for number in (1, 2):
        endless: list[Any] = []
        endless += [endless] * number
        stored = checkpoint()
        stored["detaug"]["plans"]["endless"] = endless
        done = diff(one, saved(tmp_path / "other", stored))
        assert done.exit_code == 2, done.output
        assert "nested too deeply" in done.output


def test_numpys_arrays_and_scalars_of_both_versions_are_read(tmp_path: Path) -> None:
    stored = {**checkpoint(), "array": np.arange(4), "flag": np.bool_(True)}
    one = saved(tmp_path / "one", stored)
    (tmp_path / "other").mkdir()
    names = [b"cnumpy._core.multiarray\n", b"cnumpy.core.multiarray\n"]
    if np.__version__.startswith("1."):
        names.reverse()
    with (
        zipfile.ZipFile(one / "checkpoint_final.pth") as source,
        zipfile.ZipFile(tmp_path / "other" / "checkpoint_final.pth", "w") as target,
    ):
        for entry in source.namelist():
            target.writestr(entry, source.read(entry).replace(*names))
    done = diff(one, tmp_path / "other")
    assert (done.exit_code, done.output) == (0, "equal (checkpoint_final.pth)\n")
