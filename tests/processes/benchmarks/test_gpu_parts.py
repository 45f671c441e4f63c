"""What the parts of `python -m benchmarks gpu` are made of."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.gpu import wheels
from benchmarks.gpu.children import Child, ChildFailed, Send, result_in_child
from benchmarks.gpu.machine import Utilisation
from benchmarks.gpu.trainings import Trained, first_difference
from tests.support.preloaded import run_code
from tests.support.processes import wait_until

# --- children
# ------------------------------------------------------------------------------------------


def count(send: Send, until: int) -> None:
    for number in range(until):
        send(number)


def fail(send: Send) -> None:
    print("before it")
    send("first")
    raise OSError("the disk is gone")


def die(send: Send) -> None:
    print("last words", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def hang(send: Send) -> None:
    orphan = subprocess.Popen(["sleep", "1000"])
    send(orphan.pid)
    time.sleep(1000)


def test_results_come_as_they_are_sent(tmp_path: Path) -> None:
    assert list(Child(count, 3, log=tmp_path / "log").results(30)) == [0, 1, 2]
    assert result_in_child(count, 1, log=tmp_path / "log", seconds=30) == 0


def test_a_child_that_raises_is_an_error_with_its_words(tmp_path: Path) -> None:
    results = Child(fail, log=tmp_path / "log").results(30)
    assert next(results) == "first"
    with pytest.raises(ChildFailed, match="OSError: the disk is gone"):
        next(results)
    assert "before it" in (tmp_path / "log").read_text()


def test_a_child_that_dies_is_an_error_with_its_last_words(tmp_path: Path) -> None:
    child = Child(die, log=tmp_path / "log")
    with pytest.raises(ChildFailed, match="exit code -9\n  last words"):
        list(child.results(30))
    assert child.exit_code == -signal.SIGKILL


def test_a_child_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    results = Child(hang, log=tmp_path / "log").results(1)
    orphan = psutil.Process(next(results))
    with pytest.raises(ChildFailed, match="not over in time"):
        next(results)
    assert not orphan.is_running() or orphan.status() == psutil.STATUS_ZOMBIE


# --- trainings
# -----------------------------------------------------------------------------------------


def trained(sha256: str = "a", **changes: Any) -> Trained:
    steps = [
        {"epoch": 0, "step": step, "batch": "b", "loss": 0.5, "tensors": {"w": "1", "v": "2"}}
        for step in range(2)
    ]
    steps[1].update(changes)
    return Trained(steps, sha256)


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (trained(), None),
        (trained(batch="c"), {"epoch": 0, "step": 1, "what": "batch"}),
        (trained(loss=0.6), {"epoch": 0, "step": 1, "what": "loss", "values": [0.5, 0.6]}),
        (
            trained(tensors={"w": "1", "v": "3"}),
            {"epoch": 0, "step": 1, "what": "tensor v after the step"},
        ),
        (trained("b"), {"what": "bytes of checkpoint_final.pth, of equal steps"}),
        (Trained(trained().steps[:1], "a"), {"what": "number of steps", "values": [2, 1]}),
    ],
)
def test_the_first_difference_is_named(other: Trained, expected: dict[str, Any] | None) -> None:
    assert first_difference(trained(), other) == expected


def test_a_loss_that_is_no_number_equals_itself() -> None:
    assert first_difference(trained(loss=float("nan")), trained(loss=float("nan"))) is None


# --- the card
# ------------------------------------------------------------------------------------------


def test_utilisation_is_the_mean_of_the_drivers_counter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "nvidia-smi"
    done = tmp_path / "done"
    program.write_text(f"#!/bin/sh\nprintf '50\\n[N/A]\\n70\\n'\ntouch {done}\nexec sleep 1000\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with Utilisation("cuda") as gpu:
        wait_until(done.exists, "the driver's program has printed its counters")
    assert gpu.percent == 60


def test_without_the_drivers_program_there_is_no_utilisation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with Utilisation("cuda") as gpu:
        pass
    assert gpu.percent is None


# --- packages
# ------------------------------------------------------------------------------------------


def test_wheels_fill_the_folder_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"click": 2, "rich": 3, "xxhash": 1}

    def download(requirement: str, _python: str, folder: Path) -> str:
        name = requirement.partition("==")[0]
        if name not in sizes:
            return "ERROR: no such wheel"
        (folder / f"{name}-1-py3-none-any.whl").write_bytes(bytes(sizes[name] * wheels.MIB))
        return ""

    monkeypatch.setattr(wheels, "_download", download)
    packages = ("click", "rich", "xxhash", "psutil", "there-is-none")
    fetched = wheels.fetch(tmp_path / "wheels", "3.12", max_size=4, packages=packages)
    names = sorted(file.name.partition("-")[0] for file in (tmp_path / "wheels").iterdir())
    assert names == ["click", "xxhash"]
    summary, too_large, *failed = fetched.lines()
    assert summary == "2 wheels, 3.0 MiB"
    assert too_large.startswith("does not fit: rich==")
    assert [line.partition("==")[0] for line in failed] == [
        "not there: psutil",
        "not there: there-is-none: not installed here, so no version was tried",
    ]


def test_stand_ins_take_the_place_of_what_is_absent_alone() -> None:
    code = """
import importlib.util, sys
found = importlib.util.find_spec
importlib.util.find_spec = lambda name: None if name in ("SimpleITK", "seaborn") else found(name)
from benchmarks.gpu import standins
print(sorted(standins.put_in()))
import SimpleITK as sitk
import matplotlib.pyplot as plt
matplotlib = sys.modules["matplotlib"]
matplotlib.use("agg")
assert sitk.Image is not None and plt.figure().add_subplot(1)
import tifffile
assert tifffile.__file__
"""
    done = run_code(code, folder=Path(__file__).parents[3], environment=os.environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['SimpleITK', 'matplotlib', 'seaborn']\n"
