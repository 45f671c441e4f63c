"""`detaug verify` as a user meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from detaug.tools.cli import main
from detaug.verification.factories import load_factory
from tests.processes.verify import pipelines
from tests.support.preloaded import run_code

QUICK = ("--batches", "3", "--processes", "2", "--start-method", "fork")
ROOT = Path(__file__).parents[3]


def detaug(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "COLUMNS": "200", "PYTHONPATH": str(ROOT)}
    code = "from detaug.tools.cli import main; main()"
    return run_code(code, "verify", *arguments, folder=folder, environment=environment, timeout=280)


def invoked(*arguments: str) -> Result:
    """What the command says in this process, with the interpreters of this folder's tests."""
    return CliRunner(env={"COLUMNS": "200"}).invoke(main, ["verify", *arguments])


@pytest.mark.parametrize(
    "arguments", [("--processes", "1"), pytest.param((), marks=pytest.mark.slow)]
)
def test_sound_pipeline_exits_with_0_after_a_row_for_every_circumstance(
    arguments: tuple[str, ...],
) -> None:
    done = invoked("tests.processes.verify.pipelines:sound", "--batches", "3", *arguments)
    assert done.exit_code == 0, done.output
    spawned = "1 process, spawn" if arguments else "2 processes, spawn"
    rows = (
        "1 process, fork",
        spawned,
        "resumed at random",
        "another PYTHONHASHSEED",
        "another clock",
    )
    for expected in rows:
        assert expected in done.output
    assert "different" not in done.output


def test_faulty_pipeline_exits_with_1_and_names_the_line_on_the_screen_and_in_json(
    tmp_path: Path,
) -> None:
    file = tmp_path / "found.json"
    done = invoked("tests.processes.verify.pipelines:default_rng", *QUICK, "--json", str(file))
    assert done.exit_code == 1, done.output
    line = pipelines.line_of("DefaultRng")
    assert f"tests/processes/verify/pipelines.py:{line}: `return _plus" in done.output
    told = re.search(
        r"first differs in DefaultRng: \['data'\] differs in 128 of 128 elements, by at most (.*)",
        done.output,
    )
    assert told is not None
    assert 0 < float(told[1]) < 1  # the fault adds a number below 1
    found = json.loads(file.read_text())
    assert (found["ok"], found["causes"][0]["line"]) == (False, line)
    assert {row["verdict"] for row in found["rows"]} == {"equal", "different"}


FILE = """
import numpy as np

class Loader:
    def __next__(self):
        return {"data": np.random.rand(3)}

class Drift:
    def __call__(self, **batch):
        rng = np.random.default_rng()
        return {"data": batch["data"] + rng.random()}

def make():
    return Loader(), Drift()

def sound():
    return Loader(), None
"""


@pytest.mark.slow
def test_factory_in_a_file_of_its_own_is_found_and_sent_to_spawned_workers(tmp_path: Path) -> None:
    (tmp_path / "my_pipeline.py").write_text(FILE)
    done = detaug("my_pipeline.py:sound", *QUICK, "--start-method", "spawn", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 processes, spawn" in done.stdout
    done = detaug(str(tmp_path / "my_pipeline.py:make"), *QUICK, folder=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "my_pipeline.py:10: `rng = np.random.default_rng()` draws random numbers" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "Missing argument"),
        (("tests.processes.verify.pipelines",), "not of the form"),
        (("tests.processes.verify.nowhere:make",), "there is no module"),
        (("tests.processes.verify.pipelines:no_pair", *QUICK), "must return (loader, transform)"),
        (("tests.processes.verify.pipelines:fails", *QUICK), "this transform cannot be used"),
        (("tests.processes.verify.pipelines:sound", "--batches", "0"), "--batches"),
        (
            ("tests.processes.verify.pipelines:sound", "--processes", "two"),
            "not a list of non-negative integers",
        ),
        (
            ("tests.processes.verify.pipelines:sound", "--json", "nowhere/found.json"),
            "does not exist",
        ),
    ],
)
def test_wrong_use_is_answered_with_what_is_wrong(arguments: tuple[str, ...], message: str) -> None:
    done = invoked(*arguments)
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.split())


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    files = [tmp_path / folder / "named_twice.py" for folder in ("one", "other")]
    for file in files:
        file.parent.mkdir()
        file.write_text(FILE)
    factories: list[Any] = [load_factory(f"{file}:make") for file in files]
    assert [each.__globals__["__file__"] for each in factories] == [*map(str, files)]
