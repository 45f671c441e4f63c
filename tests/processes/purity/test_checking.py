"""The run-time check: what it finds, what it says, what it costs."""

from __future__ import annotations

import collections
import enum
import logging
import os
import re
import signal
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from detaug import Check, DeterministicAugmenter, LocalProcesses, ReproducibilityError
from tests.processes.purity.ways import Then
from tests.support.logs import records_of
from tests.support.processes import wait_until

CALLS = {"number": 0}


class Items:
    def __init__(self, number=64):
        self.number = number

    def __len__(self):
        return self.number

    def __getitem__(self, i):
        return {"x": np.full(3, float(i)), "i": i}


class CountsItself(Items):
    def __init__(self):
        super().__init__()
        self.fetched = 0

    def __getitem__(self, i):
        self.fetched += 1
        return {"x": np.full(3, float(self.fetched)), "i": i}


class CountsInItsClass:
    calls = 0

    def __call__(self, **batch):
        CountsInItsClass.calls += 1
        return {**batch, "x": batch["x"] + CountsInItsClass.calls}


class CountsAndIsHeld:
    """Every process but the first says that it is there, and stays, as long as a file is there."""

    calls = 0

    def __init__(self, folder):
        self.folder = folder

    def __call__(self, **batch):
        first = self.folder / "first"
        if not first.exists():
            first.write_text(str(os.getpid()))
        if first.read_text() != str(os.getpid()) and (self.folder / "hold").exists():
            (self.folder / f"held {os.getpid()}").touch()
            wait_until(lambda: not (self.folder / "hold").exists(), "it may go on")
        CountsAndIsHeld.calls += 1
        return {**batch, "x": batch["x"] + CountsAndIsHeld.calls}


class AsksTheSystem:
    def __call__(self, **batch):
        return {**batch, "x": batch["x"] + int.from_bytes(os.urandom(3), "little")}


def counts_in_its_module(**batch):
    CALLS["number"] += 1
    return {**batch, "x": batch["x"] * CALLS["number"]}


def counts_files(**batch):
    """As those do that write previews."""
    number = len(os.listdir())
    Path(uuid.uuid4().hex).touch()
    return {**batch, "x": batch["x"] + number}


class MakesItsGenerator(Items):
    rng = None

    def __getitem__(self, i):
        if self.rng is None:
            self.rng = np.random.default_rng(8)
        return {"x": np.full(3, self.rng.random()), "i": i}


class Doubles:
    def __call__(self, **batch):
        return {**batch, "x": batch["x"] * 2}


def run(dataset, transform, n, epochs=1, **options):
    settings = {"seed": 1, **options}
    augmenter = DeterministicAugmenter.from_dataset(
        dataset, 2, shuffle=False, transform=transform, num_processes=n, **settings
    )
    with augmenter:
        for _ in range(epochs):
            for _ in augmenter:
                pass
        return augmenter.stats()


IRREPRODUCIBLE = [
    (CountsItself, None, "the loader (CountsItself)", "data_loader.fetched"),
    (Items, CountsInItsClass, "the transform (CountsInItsClass)", "CountsInItsClass.calls"),
    (
        Items,
        lambda: Then(Doubles(), CountsInItsClass()),
        "(CountsInItsClass)",
        "CountsInItsClass.calls",
    ),
    (Items, lambda: counts_in_its_module, "the transform", "CALLS['number']"),
    (Items, AsksTheSystem, "the transform (AsksTheSystem)", ""),
    (Items, lambda: counts_files, "the transform", ""),
    (MakesItsGenerator, None, "the loader (MakesItsGenerator)", "data_loader.rng"),
]


@pytest.mark.parametrize(
    ("n", "dataset", "transform", "who", "what"),
    [
        *((n, *case) for case in IRREPRODUCIBLE for n in (0, 3)),
        # A single worker makes all batches, and another process makes some of them again.
        *((1, *case) for case in IRREPRODUCIBLE[:2]),
    ],
)
def test_what_is_not_reproducible_is_an_error_that_names_it(
    n, dataset, transform, who, what, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ReproducibilityError) as caught:
        run(dataset(), transform and transform(), n)
    assert caught.value.keys == ("x",)
    assert caught.value.epoch == 0
    assert f"step {caught.value.step}" in str(caught.value)
    assert who in str(caught.value)
    assert what in str(caught.value)


class CountsVisits(Items):
    """Changes what it gives of a case with every visit to it."""

    def __init__(self):
        super().__init__(20)
        self.visits = collections.Counter()

    def __getitem__(self, i):
        self.visits[i] += 1
        return {"x": np.full(3, float(self.visits[i])), "i": i}


PASSES = {"number": 0}


def counts_its_passes():
    PASSES["number"] += 1
    for step in range(12):
        yield {"x": np.full(3, float(PASSES["number"])), "step": step}


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("source", [CountsVisits, lambda: counts_its_passes])
def test_what_shows_from_the_second_epoch_on_is_told(source, n, caplog):
    settings: dict[str, Any] = {
        "num_processes": n,
        "seed": 1,
        "check": Check(on_mismatch="warn"),
    }
    if source is CountsVisits:
        augmenter = DeterministicAugmenter.from_dataset(source(), 2, **settings)
    else:
        augmenter = DeterministicAugmenter(source(), None, **settings)
    with augmenter:
        for _ in range(3):
            for _ in augmenter:
                pass
    assert re.search(r"step \d+ is not reproducible: .* differs in 'x'", caplog.text)


class RunningMean:
    """Centres by the mean square of all batches so far, which its class holds.

    Not by their mean: of three batches in a row that is the middle one's own.
    """

    seen = 0
    total = 0.0

    def __call__(self, **batch):
        # Work, which a check has to pay for as well.
        until = time.process_time() + 0.06
        while time.process_time() < until:
            pass
        RunningMean.seen += 1
        RunningMean.total += (batch["x"] ** 2).mean().item()
        return {**batch, "x": batch["x"] - RunningMean.total / RunningMean.seen}


@pytest.mark.parametrize("batches", [24, 5])
def test_a_mean_of_all_batches_is_told_by_eight_slow_workers(batches):
    """Most of what they make is some worker's first batch, which cannot show it."""
    with pytest.raises(ReproducibilityError, match=r"RunningMean\.(seen|total)"):
        run(Items(2 * batches), RunningMean(), 8)


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_what_counts_in_step_with_the_second_making_is_found_too(start_method):
    with pytest.raises(ReproducibilityError, match="CountsInItsClass"):
        run(
            Items(),
            CountsInItsClass(),
            1,
            epochs=3,
            executor=LocalProcesses(start_method=start_method),
            check=1,
        )


class Phase(enum.Enum):
    EARLY = 0
    LATE = 1


class ChangesItsClass:
    """Looks something up by Python's own classes on the way, which give other things, too."""

    strength = 0.25

    def __call__(self, **batch):
        ChangesItsClass.strength *= 2
        phase = Phase(int(ChangesItsClass.strength > 0.5))
        lookup = collections.ChainMap({"phase": phase})
        return {**batch, "x": batch["x"] * ChangesItsClass.strength + lookup["phase"].value}


@pytest.mark.parametrize("n", [0, 1])
def test_the_first_line_names_the_class_attribute_and_no_class_of_pythons_own(n):
    ChangesItsClass.strength = 0.25
    with pytest.raises(ReproducibilityError) as caught:
        run(Items(), ChangesItsClass(), n, executor=LocalProcesses("fork") if n else None)
    headline = str(caught.value).splitlines()[0]
    assert f"{__name__}.ChangesItsClass.strength (" in headline
    assert "in the output of the transform (ChangesItsClass)" in headline


@pytest.mark.parametrize(("check", "least"), [(True, 1), (1, 8), (Check(ignore=("x",)), 1)])
@pytest.mark.parametrize("n", [0, 2])
def test_equal_batches_are_counted_and_nothing_is_said(n, check, least, caplog):
    transform = CountsInItsClass() if isinstance(check, Check) else Doubles()
    stats = run(Items(16), transform, n, check=check)
    assert stats["checked"] >= least
    assert stats["mismatches"] == 0
    assert not records_of(caplog)


@pytest.mark.parametrize("n", [0, 2])
def test_a_warning_is_enough_where_that_is_asked_for(n, caplog):
    with caplog.at_level(logging.WARNING, "detaug"):
        stats = run(CountsItself(), None, n, check=Check(on_mismatch="warn"))
    assert stats["mismatches"] > 0
    assert "is not reproducible" in caplog.text
    assert 'on_mismatch="warn"' in caplog.text
    assert run(CountsItself(), None, n, check=False)["checked"] == 0


class WithProcess(Items):
    def __getitem__(self, i):
        return {**super().__getitem__(i), "who": {"pid": os.getpid(), "name": "worker"}}


def test_process_numbers_are_not_compared(caplog):
    assert run(WithProcess(), None, 2, collate_fn=lambda items: items[0])["mismatches"] == 0
    assert not records_of(caplog)


def test_equal_random_numbers_in_different_batches_are_noticed(caplog):
    def noise(**batch):
        return {**batch, "x": batch["x"] * 0 + np.random.RandomState(7).standard_normal(3)}

    with caplog.at_level(logging.WARNING, "detaug"):
        run(Items(), noise, 2)
    assert "draws the same random numbers for different batches" in caplog.text


def test_a_table_that_a_transform_adds_is_no_random_number(caplog):
    def with_spacing(**batch):
        return {**batch, "spacing": np.array([1.0, 1.0, 3.3])}

    run(Items(), with_spacing, 2)
    assert not records_of(caplog)


def test_equal_random_numbers_under_another_key_are_noticed(caplog):
    def renamed(x, **batch):
        return {**batch, "image": x * 0 + np.random.default_rng(3).random(x.shape)}

    run(Items(), renamed, 2)
    assert "'image' is the same, byte for byte" in caplog.text


class LoadsAnAtlas:
    def __init__(self):
        self.atlas = None

    def __call__(self, **batch):
        if self.atlas is None:
            self.atlas = np.arange(400_000.0)
        return {**batch, "y": self.atlas[batch["i"]]}


@pytest.mark.parametrize(("keep", "times"), [((), 1), (("atlas",), 0)])
def test_what_is_loaded_for_every_batch_is_named_unless_it_is_kept(keep, times, caplog):
    with caplog.at_level(logging.WARNING, "detaug"):
        run(Items(), LoadsAnAtlas(), 0, keep=keep)
    assert caplog.text.count("keep=('atlas',)") == times


@pytest.mark.slow
def test_checks_go_on_where_their_process_has_died(tmp_path):
    """Under "spawn" one process makes all batches again."""
    (tmp_path / "hold").touch()
    options = {
        "check": Check(on_mismatch="raise"),
        "executor": LocalProcesses("spawn"),
        "num_processes": 1,
        "seed": 1,
    }
    transform = CountsAndIsHeld(tmp_path)
    with DeterministicAugmenter.from_dataset(
        Items(400_000), 2, transform=transform, **options
    ) as augmenter:
        while not (held := list(tmp_path.glob("held *"))):
            next(augmenter)
        checker = int(held[0].name.split()[1])
        os.kill(checker, signal.SIGKILL)
        wait_until(lambda: not psutil.pid_exists(checker), "it is gone")
        (tmp_path / "hold").unlink()
        with pytest.raises(ReproducibilityError):
            for _ in augmenter:
                pass


class SaysWhere(Items):
    """Its samples hold the process's number in some way."""

    def __init__(self, shape: Callable[[int], Any]) -> None:
        super().__init__()
        self.shape = shape

    def __getitem__(self, index: int) -> Any:
        return {"x": np.ones(2) * index, "pid": self.shape(os.getpid())}


@pytest.mark.parametrize("shape", [int, np.int64, lambda pid: np.array([pid]), lambda pid: [pid]])
@pytest.mark.parametrize("n", [0, 1])
def test_a_process_number_is_no_difference_however_it_is_put_together(n, shape):
    stats = run(SaysWhere(shape), None, n)
    assert stats["checked"] > 0
    assert stats["mismatches"] == 0
