"""What the parts of `python -m benchmarks gpu` are made of."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
import torch

from benchmarks.gpu import wheels
from benchmarks.gpu.bench import Bench, Child, Finding
from benchmarks.gpu.card import utilisation
from tests.support.preloaded import run_code
from tests.support.processes import wait_until

# --- children
# ------------------------------------------------------------------------------------------


def count(until: int) -> Iterator[Finding]:
    for number in range(until):
        yield Finding(str(number), "")


def fail() -> Iterator[Finding]:
    print("before it")
    yield Finding("first", "")
    raise OSError("the disk is gone")


def die() -> Iterator[Finding]:
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    yield Finding("never", "")


def hang() -> Iterator[Finding]:
    orphan = subprocess.Popen(["sleep", "1000"])
    yield Finding("orphan", str(orphan.pid))
    time.sleep(1000)


def leave_a_worker() -> Iterator[Finding]:
    subprocess.Popen(["sleep", "1000"], close_fds=False)
    yield Finding("result", "")


def draw() -> Iterator[Finding]:
    numbers = [random.random(), np.random.random(), torch.rand(()).item()]
    yield Finding("numbers", "", {"numbers": numbers})


def bench(folder: Path, seconds: float = 30) -> Bench:
    return Bench("cpu", folder, time.monotonic() + seconds)


def test_findings_come_as_they_are_sent(tmp_path: Path) -> None:
    findings = Child(bench(tmp_path), "a child", count, 3).findings()
    assert [finding.name for finding in findings] == ["0", "1", "2"]


def test_each_child_draws_numbers_of_its_own(tmp_path: Path) -> None:
    """Otherwise trainings of a trainer that seeds nothing would begin with the same weights."""
    numbers = []
    for _ in range(2):
        (finding,) = Child(bench(tmp_path), "a child", draw).findings()
        numbers.append(finding.values["numbers"])
    for first, second in zip(*numbers, strict=True):
        assert first != second


def test_a_child_that_raises_yields_what_it_raised(tmp_path: Path) -> None:
    first, failure = Child(bench(tmp_path), "a child", fail).findings()
    assert first.name == "first"
    assert (failure.name, failure.is_as_promised) == ("a child", False)
    assert "OSError('the disk is gone')" in failure.text
    assert "before it" in (tmp_path / "a child.txt").read_text()


def test_a_child_that_dies_yields_its_last_words(tmp_path: Path) -> None:
    (failure,) = Child(bench(tmp_path), "a child", die).findings()
    assert failure.text == "failed: exit code -9\n  last words"
    assert not failure.is_as_promised
    killed = Child(bench(tmp_path), "killed", die, exit_code=-signal.SIGKILL)
    assert list(killed.findings()) == []


def test_a_child_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    orphan, timeout = Child(bench(tmp_path, 1), "a child", hang).findings()
    assert timeout.text == "no time left"
    process = psutil.Process(int(orphan.text))
    assert not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_workers_that_a_child_leaves_do_not_hold_up_its_end(tmp_path: Path) -> None:
    began = time.monotonic()
    (result,) = Child(bench(tmp_path, 300), "a child", leave_a_worker).findings()
    assert result.name == "result"
    assert time.monotonic() - began < 200


# --- the card
# ------------------------------------------------------------------------------------------


def test_utilisation_is_that_of_the_drivers_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    done = tmp_path / "done"
    program.write_text(f"#!/bin/sh\nprintf '50\\n[N/A]\\n70\\n'\ntouch {done}\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with utilisation("cuda") as readings:
        wait_until(done.exists, "the driver's program has printed its counters")
    assert readings == [50, 70]


def test_without_the_drivers_program_there_is_no_utilisation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with utilisation("cuda") as readings:
        pass
    assert readings == []


# --- packages
# ------------------------------------------------------------------------------------------


def test_wheels_fill_the_folder_the_small_ones_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"click": 2, "rich": 3, "xxhash": 1}

    def download(requirements: Collection[str], _python: str, folder: Path) -> None:
        for name in [requirement.partition("==")[0] for requirement in requirements]:
            (folder / f"{name}-1-py3-none-any.whl").write_bytes(bytes(sizes[name] * wheels.MIB))

    monkeypatch.setattr(wheels, "download", download)
    lines = list(wheels.fetch(tmp_path / "wheels", "3.12", max_size=4, packages=sizes))
    names = sorted(file.name.partition("-")[0] for file in (tmp_path / "wheels").iterdir())
    assert names == ["click", "xxhash"]
    assert lines == ["does not fit: rich-1-py3-none-any.whl, 3.0 MiB", "2 wheels, 3.0 MiB"]


def test_stand_ins_take_the_place_of_what_is_absent_alone() -> None:
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in ("SimpleITK", "seaborn") else found(name)
from benchmarks.gpu.trainers import put_in_stand_ins
put_in_stand_ins()
import SimpleITK as sitk
import matplotlib.pyplot as plt
matplotlib = sys.modules["matplotlib"]
matplotlib.use("agg")
assert sitk.Image is not None and plt.figure().add_subplot(1)
import tifffile
assert tifffile.__file__
print(type(sitk).__name__, type(matplotlib).__name__)
"""
    done = run_code(code, folder=Path(__file__).parents[3], environment=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "MagicMock MagicMock\n"
