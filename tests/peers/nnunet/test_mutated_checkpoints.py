"""`detaug diff` and `--c` report a damaged or edited checkpoint in a line.

They run no code that a checkpoint holds.
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
    """Return a small checkpoint as nnU-Net and detaug write it."""
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


#: Keys whose values are mutated; the rest is torch's own, of which bytes are mutated.
PARTS = ("logging", "init_args", "trainer_name", "detaug")


def saved(folder: Path, content: Any) -> Path:
    """Save a checkpoint into a folder, and return the folder."""
    folder.mkdir(exist_ok=True)
    torch.save(content, folder / "checkpoint_final.pth")
    return folder


def diff(one: Path, other: Path) -> Result:
    """Run `detaug diff` on two folders with a checkpoint each."""
    return CliRunner().invoke(main, ["diff", str(one), str(other)])


def save_mutated(folder: Path, draw: random.Random) -> None:
    """Save a checkpoint with a mutated byte or value."""
    if draw.random() < 0.4:
        file = saved(folder, checkpoint()) / "checkpoint_final.pth"
        file.write_bytes(mutated_bytes(file.read_bytes(), draw))
        return
    content = checkpoint()
    parts = {name: content.pop(name) for name in PARTS}
    saved(folder, {**content, **mutated_value(parts, draw)})


def read_mutated(folder: Path, seed: int) -> None:
    """Compare a mutated checkpoint with a whole one, and check how the command ends."""
    whole = saved(folder / "one", checkpoint())
    save_mutated(folder / "other", random.Random(seed))
    check_ending(diff(whole, folder / "other"))


def continue_mutated(seed: int) -> None:
    """Continue from a mutated record.

    Either it is refused in words that a terminal can show, or it is accepted as the same.
    """
    content = mutated_value({"detaug": asdict(RECORD)}, random.Random(seed))
    lines: list[str] = []
    try:
        record = RunRecord.from_checkpoint(content)
        if record is not None:
            lines = RECORD.check_continues(record)
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
    one = saved(tmp_path / "one", checkpoint())
    other = saved(tmp_path / "other", checkpoint())
    done = diff(one, other)
    assert done.exit_code == 0
    assert done.output == "equal (checkpoint_final.pth)\n"


class Hostile:
    """An object that makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> Any:
        return (os.mkdir, (str(self.folder),))


def test_no_code_of_a_file_is_run(tmp_path: Path) -> None:
    one = saved(tmp_path / "one", checkpoint())
    for key in ("detaug", "network_weights", "hostile"):
        content = {**checkpoint(), key: Hostile(tmp_path / "run")}
        other = saved(tmp_path / "other", content)
        done = diff(one, other)
        assert done.exit_code == 2, done.output
        assert "holds a posix.mkdir, which is neither torch's nor NumPy's" in done.output
    assert not (tmp_path / "run").exists()


def test_containers_that_hold_themselves_are_refused(tmp_path: Path) -> None:
    """A container with two references to itself would take a walk twice as long at every level."""
    one = saved(tmp_path / "one", checkpoint())
    for num_references in (1, 2):
        endless: list[Any] = []
        endless.extend([endless] * num_references)
        content = checkpoint()
        content["detaug"]["plans"]["endless"] = endless
        done = diff(one, saved(tmp_path / "other", content))
        assert done.exit_code == 2, done.output
        assert "nested too deeply" in done.output


def test_numpys_arrays_and_scalars_of_both_versions_are_read(tmp_path: Path) -> None:
    content = {**checkpoint(), "array": np.arange(4), "flag": np.bool_(True)}
    one = saved(tmp_path / "one", content)
    (tmp_path / "other").mkdir()
    own_name = b"cnumpy._core.multiarray\n"
    other_name = b"cnumpy.core.multiarray\n"
    if np.__version__.startswith("1."):
        own_name, other_name = other_name, own_name
    with (
        zipfile.ZipFile(one / "checkpoint_final.pth") as source,
        zipfile.ZipFile(tmp_path / "other" / "checkpoint_final.pth", "w") as target,
    ):
        for entry in source.namelist():
            target.writestr(entry, source.read(entry).replace(own_name, other_name))
    done = diff(one, tmp_path / "other")
    assert done.exit_code == 0
    assert done.output == "equal (checkpoint_final.pth)\n"
