"""`detaug bench` as a user meets it."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from PIL import Image
from torch.utils.data import Dataset, IterableDataset

from detaug import DeterministicAugmenter
from detaug.errors import UnusableError
from detaug.tools.bench import run as benching
from detaug.tools.bench.systems import OURS, SYSTEMS, Workers, _endless
from detaug.tools.bench.timing import Consumption, usable_core_numbers
from detaug.tools.cli import main
from detaug.verification.factories import call_factory
from tests.support.waiting import join

PIPELINES = """
import numpy as np
from detaug.transforms import Compose, GaussianNoise, Mirror
from batchgenerators.dataloading.data_loader import DataLoader
from detaug import current
from torch.utils.data import Dataset

class Loader(DataLoader):
    def __init__(self):
        super().__init__(None, 2, infinite=True)
    def generate_train_batch(self):
        return {"data": np.random.rand(2, 1, 8, 8, 8).astype(np.float32)}

class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, index):
        return index

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

QUICK = ("--processes", "1", "--seconds", "0.1")
#: Of each system, where rounds are counted.
ROUNDS = 2


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
    results = ("-o", str(folder / "found.png"), "--json", str(folder / "found.json"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(benching, "ROUNDS", ROUNDS)
        code, output = run(target, *QUICK, *results)
    assert code == 0, output
    (folder / "output.txt").write_text(output)
    return folder


def test_all_systems_are_measured_told_and_drawn(folder: Path) -> None:
    found = json.loads((folder / "found.json").read_text())
    assert [(row["system"], row["processes"]) for row in found["rates"]] == [
        (each, 1) for each in SYSTEMS
    ]
    assert all(
        len(row["batches_per_second"]) == ROUNDS and not row["reason"] for row in found["rates"]
    )
    output = (folder / "output.txt").read_text()
    assert all(each in output for each in (*SYSTEMS, "Drawn in"))
    assert Image.open(folder / "found.png").size == (1350, 600)


@pytest.fixture
def one_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rounds there are changes nothing of what is tested."""
    monkeypatch.setattr(benching, "ROUNDS", 1)


def run_of(batches_per_second: float) -> Consumption:
    return Consumption(100, 100 / batches_per_second, waited=0.0, cpu=0.0, elsewhere=0.0)


def test_ratios_are_taken_within_a_round() -> None:
    results: dict[str, list[Consumption | str]] = {
        "detaug": [run_of(8.0), run_of(6.0)],
        "torch's DataLoader": [run_of(2.0), run_of(3.0)],
    }
    theirs = benching._rate("torch's DataLoader", 2, results)
    assert theirs.times is not None
    times = (theirs.times.lowest, theirs.times.median, theirs.times.highest)
    assert times == pytest.approx((2.0, 3.0, 4.0))
    assert benching._rate("detaug", 2, results).times is None


@pytest.mark.usefixtures("one_round")
def test_without_a_factory_the_demo_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("nilearn")
    monkeypatch.setattr(benching, "DEMO_PATCH", 32)
    code, output = run(*QUICK)
    assert code == 0, output
    assert output.count("not run") == 0


@pytest.mark.usefixtures("one_round")
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


# --- data sets
# -------------------------------------------------------------------------------------


class Numbers(Dataset):
    def __len__(self) -> int:
        return 9

    def __getitem__(self, index: int) -> int:
        return index


class Stream(IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(9))


def doubled(batch: torch.Tensor) -> torch.Tensor:
    return 2 * batch


def with_a_transform() -> tuple[Numbers, Any]:
    return Numbers(), doubled


samples_of = DeterministicAugmenter.from_dataset

DATA_SETS: dict[str, Callable[[], Any]] = {
    "a data set": Numbers,
    "with a transform": with_a_transform,
    "in its own order": partial(samples_of, Numbers(), 4, shuffle=False),
    "with a sampler": partial(samples_of, Numbers(), 4, sampler=range(8, -1, -1)),
    "with a batch sampler": partial(samples_of, Numbers(), batch_sampler=[[0, 1], [2], [3, 8]]),
    "without the last batch": partial(samples_of, Numbers(), 4, drop_last=True),
    "collated otherwise": partial(samples_of, Numbers(), 4, collate_fn=torch.tensor),
    "iterable": partial(samples_of, Stream(), 4),
}


@pytest.mark.parametrize("kind", DATA_SETS)
def test_torch_gives_the_samples_of_a_data_set_that_detaug_gives(kind: str) -> None:
    epochs = {}
    for system in (OURS, "torch's DataLoader"):
        pipeline = call_factory(DATA_SETS[kind])
        with pipeline.augmenter(0, num_cached=0) as augmenter:
            length = len(list(augmenter))
        with SYSTEMS[system](call_factory(DATA_SETS[kind]), Workers(1, 4)) as batches:
            epochs[system] = [batch.tolist() for batch in islice(batches, length)]
    ours, theirs = epochs.values()
    assert [len(batch) for batch in ours] == [len(batch) for batch in theirs]
    if kind != "without the last batch":  # which samples that leaves out is drawn
        assert sorted(chain(*ours)) == sorted(chain(*theirs))


@pytest.mark.usefixtures("one_round")
def test_a_data_set_is_measured_under_torch_too(folder: Path) -> None:
    code, output = run(f"{folder}/benched.py:Numbers", *QUICK, "--json", str(folder / "set.json"))
    assert code == 0, output
    rates = json.loads((folder / "set.json").read_text())["rates"]
    measured = {rate["system"]: bool(rate["batches_per_second"]) for rate in rates}
    assert measured == {
        "detaug": True,
        "NonDetMultiThreadedAugmenter": False,
        "torch's DataLoader": True,
    }
    assert "it takes loaders of batches, and this is a data set" in " ".join(output.split())


# --- a busy machine
# --------------------------------------------------------------------------------


def keep_busy() -> None:
    while True:
        sum(range(1000))


@pytest.fixture
def busy_cores() -> Iterator[None]:
    """More than the share of the cores up to which figures are valid, and at least one."""
    fork = multiprocessing.get_context("fork")
    number = 1 + round(2 * benching.MOST_ELSEWHERE * len(usable_core_numbers()))
    processes = [fork.Process(target=keep_busy, daemon=True) for _ in range(number)]
    for process in processes:
        process.start()
    yield
    for process in processes:
        process.kill()
        join(process, "a busy process has ended")


@pytest.mark.usefixtures("busy_cores", "one_round")
def test_beside_busy_programs_the_figures_are_said_to_be_invalid(folder: Path) -> None:
    file = folder / "busy.json"
    # As the system counts, in hundredths of a second, shorter runs tell nothing.
    seconds = ("--seconds", "0.2")
    code, output = run(f"{folder}/benched.py:only_detaug", *QUICK, *seconds, "--json", str(file))
    assert code == 0, output
    load = json.loads(file.read_text())["load"]
    assert not load["is_valid"]
    assert load["cores_elsewhere"] > 0.1 * load["cores"]
    warning = f"other programs use {load['cores_elsewhere']:.1f} of {load['cores']} cores"
    assert f"{warning}: these figures are not valid (load average" in " ".join(output.split())


def test_the_picture_says_so_too() -> None:
    rates = (benching.Rate("detaug", 1, (8.0,)),)
    environment = {"cpu": {"model": "a CPU"}}
    busy = benching.Load(2, 1.6, 3.0, 4.0, is_valid=False)
    idle = benching.Load(2, 0.01, 0.1, 0.9, is_valid=True)
    titles = [
        benching.Benchmark(None, 1.5, rates, load, environment).figure().axes[0].get_title()
        for load in (busy, idle)
    ]
    assert titles == [
        "other programs use 1.6 of 2 cores: these figures are not valid",
        "batches per second",
    ]


def test_a_program_that_uses_little_of_the_cores_is_no_warning() -> None:
    cores = len(usable_core_numbers())
    assert benching.Load.of([0.05 * cores, 0.1 * cores], 0.0, 1.0).warning == ""
    assert benching.Load.of([0.1 * cores, 0.3 * cores], 0.0, 1.0).warning
