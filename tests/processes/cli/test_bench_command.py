"""`detaug bench` as a user meets it."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path

import pytest
from click.testing import CliRunner
from PIL import Image

from detaug.bench import benching
from detaug.bench.systems import SYSTEMS, Workers, _endless
from detaug.cli import main
from detaug.errors import UnusableError
from detaug.verification.handed_in import call_factory

PIPELINES = """
import numpy as np
from detaug.transforms import Compose, GaussianNoise, Mirror
from batchgenerators.dataloading.data_loader import DataLoader
from detaug import current

class Loader(DataLoader):
    def __init__(self):
        super().__init__(None, 2, infinite=True)
    def generate_train_batch(self):
        return {"data": np.random.rand(2, 1, 8, 8, 8).astype(np.float32)}

class OnlyDetaug(Loader):
    def generate_train_batch(self):
        current().step
        return super().generate_train_batch()

class Broken(Loader):
    def generate_train_batch(self):
        raise OSError("the disk is gone")

def make():
    return Loader(), Compose([Mirror((0, 1, 2)), GaussianNoise((0.1, 0.1))])

def only_detaug():
    return OnlyDetaug(), None

def broken():
    return Broken(), None
"""

QUICK = ("--processes", "1", "--seconds", "0.2")


def run(*arguments: str) -> tuple[int, str]:
    with CliRunner().isolated_filesystem():  # the picture is drawn where the command runs
        done = CliRunner().invoke(main, ["bench", *arguments])
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the pipelines, and with what was measured of one of them."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "benched.py").write_text(PIPELINES)
    target = f"{folder}/benched.py:make"
    code, output = run(
        target, *QUICK, "-o", str(folder / "found.png"), "--json", str(folder / "found.json")
    )
    assert code == 0, output
    (folder / "output.txt").write_text(output)
    return folder


def test_all_systems_are_measured_told_and_drawn(folder: Path) -> None:
    found = json.loads((folder / "found.json").read_text())
    assert [(row["system"], row["processes"]) for row in found["rates"]] == [
        (each, 1) for each in SYSTEMS
    ]
    assert all(
        len(row["batches_per_second"]) == benching.ROUNDS and not row["reason"]
        for row in found["rates"]
    )
    output = (folder / "output.txt").read_text()
    assert all(each in output for each in (*SYSTEMS, "Drawn in"))
    assert Image.open(folder / "found.png").size == (1350, 600)


def test_ratios_are_taken_within_a_round() -> None:
    found = {"detaug": [8.0, 6.0], "torch's DataLoader": [2.0, 3.0]}
    theirs = benching._summary("torch's DataLoader", 2, found)
    assert theirs.times is not None
    assert (theirs.times.lowest, theirs.times.median, theirs.times.highest) == (2.0, 3.0, 4.0)
    assert benching._summary("detaug", 2, found).times is None


def test_without_a_factory_the_demo_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nilearn")
    monkeypatch.setattr(benching, "ROUNDS", 1)
    monkeypatch.setattr(benching, "DEMO_PATCH", 32)
    code, output = run(*QUICK)
    assert code == 0, output
    assert output.count("not run") == 0


def test_pipeline_that_only_detaug_can_run_is_measured_with_it(folder: Path) -> None:
    code, output = run(f"{folder}/benched.py:only_detaug", *QUICK)
    assert code == 0, output
    flat = " ".join(output.split())
    assert "NonDetMultiThreadedAugmenter: not measured, because" in flat
    reason = "detaug.current() is known only while a DeterministicAugmenter makes a batch"
    assert f"torch's DataLoader: not measured, because RuntimeError: {reason}" in flat
    assert ".." not in flat


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("{folder}/benched.py:broken", *QUICK), "the disk is gone"),
        (("--processes", "0"), "needs at least one process"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_status_2(
    folder: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, output = run(*(each.format(folder=folder) for each in arguments))
    assert code == 2, output
    assert message in " ".join(output.split())
    assert "Traceback" not in output


def test_epochs_follow_each_other_and_a_loader_without_batches_is_told() -> None:
    assert list(islice(_endless([1, 2]), 5)) == [1, 2, 1, 2, 1]
    with pytest.raises(UnusableError, match="the loader gives no batches"):
        next(_endless([]))


class Numbers:
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("system", list(SYSTEMS)[1:])
def test_of_a_data_set_only_detaugs_speed_is_measured(system: str) -> None:
    made = call_factory(Numbers)
    with (
        pytest.raises(UnusableError, match="of data sets, only detaug's speed"),
        SYSTEMS[system](made, Workers(1, 4)),
    ):
        pass
