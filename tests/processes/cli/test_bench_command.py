"""`detaug bench` as a user meets it; its page as a browser shows it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from PIL import Image

from detaug.bench import child, running
from detaug.bench.child import Failure, Taken, take
from detaug.bench.result import Measured, Result
from detaug.bench.settings import SYSTEMS, Settings
from detaug.cli import main
from tests.support.browser import look_at

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
    done = CliRunner().invoke(main, ["bench", *arguments])
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With the pipelines, and with what was measured of one of them."""
    folder = tmp_path_factory.mktemp("bench")
    (folder / "benched.py").write_text(PIPELINES)
    target = f"{folder}/benched.py:make"
    code, output = run(target, *QUICK, "-o", str(folder / "found.html"), "--json", str(folder / "found.json"))
    assert code == 0, output
    (folder / "output.txt").write_text(output)
    return folder


def test_all_systems_are_measured_told_and_written(folder: Path) -> None:
    found = json.loads((folder / "found.json").read_text())
    systems = ["detaug", "NonDetMultiThreadedAugmenter", "torch's DataLoader"]
    assert [(row["system"], row["processes"]) for row in found["throughput"]] == [(each, 1) for each in systems]
    assert all(row["batches_per_second"] > 0 and row["not_run"] is None for row in found["throughput"])
    assert [row["system"] for row in found["waiting"]] == systems
    assert all(0 <= row["waited_share"] <= 1 for row in found["waiting"])
    (timed,) = found["transforms"]
    assert list(timed["seconds_per_sample"]) == ["Mirror", "GaussianNoise"]
    output = (folder / "output.txt").read_text()
    assert all(each in output for each in systems)
    assert "Drawn in" in output


def test_picture_is_drawn(folder: Path) -> None:
    picture = Image.open(folder / "found.png")
    assert picture.size[0] > 1000


def test_page_needs_nothing_but_itself(folder: Path) -> None:
    page = (folder / "found.html").read_text()
    assert "<script" not in page
    assert 'name="viewport" content="width=device-width, initial-scale=1"' in page
    assert "prefers-color-scheme: dark" in page
    addresses = set(re.findall(r"(?:src|href)=\"([^#\"][^\"]*)\"|url\((?!#)([^)]*)\)|@import", page))
    assert not addresses
    assert len(re.findall(r'\bid="', page)) == len(set(re.findall(r'\bid="([^"]*)"', page))), (
        "charts do not share names"
    )


@pytest.mark.parametrize(
    ("width", "dark"),
    [
        (390, False),
        (1280, True),
        pytest.param(390, True, marks=pytest.mark.slow),
        pytest.param(1280, False, marks=pytest.mark.slow),
    ],
    ids=["390-light", "1280-dark", "390-dark", "1280-light"],
)
def test_nothing_sticks_out_in_a_browser(folder: Path, width: int, dark: bool) -> None:
    found = look_at(folder / "found.html", width, dark)
    assert found["overflowing"] == []
    assert found["width"] <= width
    assert found["charts"] >= 3
    assert found["smallest"] >= 9, "letters in charts can be read on a phone"
    assert found["background"] == ("rgb(22, 24, 27)" if dark else "rgb(255, 255, 255)")
    assert found["ink"] == ("rgb(232, 234, 237)" if dark else "rgb(32, 33, 36)")


def test_without_a_factory_the_engine_alone_is_measured_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "ROUNDS", 1)  # the other measurement has them all
    monkeypatch.setattr(child, "DEMO_PATCH", 32)
    code, output = run(*QUICK, "-o", str(tmp_path / "demo.html"), "--json", str(tmp_path / "demo.json"))
    assert code == 0, output
    found = json.loads((tmp_path / "demo.json").read_text())
    systems = ["detaug", "NonDetMultiThreadedAugmenter", "torch's DataLoader"]
    loads = ["a ready batch of 25 MB", "a batch of one integer"]
    assert [(row["load"], row["system"]) for row in found["engine"]] == [
        (load, each) for load in loads for each in systems
    ]
    assert all(row["batches_per_second"] > 0 for row in found["engine"])
    assert [row["system"] for row in found["throughput"]] == systems
    assert [row["name"] for row in found["transforms"]] == ["detaug's transforms", "batchgenerators' transforms"]
    assert "Through the engine alone, a ready batch of 25 MB came" in output
    for width in (390, 1280):
        seen = look_at(tmp_path / "demo.html", width)
        assert (seen["overflowing"], seen["charts"]) == ([], 6)
        assert seen["smallest"] >= 9


def test_pipeline_that_only_detaug_can_run_is_measured_with_it(folder: Path) -> None:
    page = folder / "only.html"
    code, output = run(f"{folder}/benched.py:only_detaug", *QUICK, "-o", str(page))
    assert code == 0, output
    flat = " ".join(output.split())
    assert "NonDetMultiThreadedAugmenter: not measured, because" in flat
    assert "torch's DataLoader: not measured, because" in flat
    assert "Time per transform: not measured, because its transforms are not known one by one" in flat
    assert page.stat().st_size > 10_000
    assert ">detaug<" in page.read_text(), "legends name the systems"
    assert ">NonDetMultiThreaded<" not in page.read_text(), "but none that was not measured"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere:make",), "there is no module 'nowhere'"),
        (("{folder}/benched.py:made",), "there is no 'made'"),
        (("{folder}/benched.py:broken", *QUICK), "the disk is gone"),
        (("--processes", "0"), "needs at least one process"),
        (("--processes", "two"), "is not a list of non-negative integers"),
        (("-o", "nowhere/a.html"), "the folder 'nowhere' does not exist"),
        (("-o", "a.pdf"), "'a.pdf' does not end with .html"),
        (("-o", "/proc/a.html"), "cannot write '/proc/a.html'"),
    ],
)
def test_what_cannot_be_done_is_one_message_and_status_2(
    folder: Path, arguments: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, output = run(*(each.format(folder=folder) for each in arguments))
    assert code == 2, output
    assert message in " ".join(output.split())
    assert "Traceback" not in output
    assert not list(tmp_path.iterdir())


def test_batches_of_short_epochs_are_taken_on_and_on() -> None:
    taken = take(lambda: iter([1, 2]), 0.01, 0.001)
    assert len(taken.stamps) == len(taken.waits) > 4
    with pytest.raises(Failure, match="the loader gives no batches"):
        take(lambda: iter([]), 0.01, 0)


def test_numbers_of_a_busy_machine_say_so_first() -> None:
    taken: Any = Taken(0.0, [0.1 * n for n in range(1, 9)], [0.1] * 8)
    measured = tuple(Measured(each, 1, taken) for each in SYSTEMS)
    environment = {"cpu": {"usable_cores": 2}}
    busy = Result(Settings("a:b", (1,)), measured, 0.1, measured, (), environment, 1.0, cores_elsewhere=1.5)
    assert "Other programs kept 1.5 of 2 cores busy" in busy.sentences[-1]
    idle = Result(Settings("a:b", (1,)), measured, 0.1, measured, (), environment, 1.0, cores_elsewhere=0.0)
    assert not any("Other programs" in each for each in idle.sentences)


def test_rate_and_waits_leave_the_start_out() -> None:
    taken: Any = Taken(0.0, [10.0, 11.0, 12.0, 13.0, 14.0, 15.0], [10.0, 1.0, 1.0, 1.0, 1.0, 1.0])
    assert taken.counted.start == 1
    assert taken.rate == 1
