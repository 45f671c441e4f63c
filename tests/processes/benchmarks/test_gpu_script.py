"""`python -m benchmarks gpu`: its short form on a CPU, in an environment as a GPU's machine has it."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.wheels import EXPECTED, needed_by, needed_packages
from benchmarks.tables.gpus import gpu_line, gpu_table
from tests.support.preloaded import run_code
from tests.support.waiting import run_program

REPOSITORY = Path(__file__).parents[3]
QUICK = ("--device", "cpu", "--quick")


def environment_of(names: Iterable[str], folder: Path) -> dict[str, str]:
    """Return variables with which Python has these distributions and no others."""
    folder.mkdir()
    for name in names:
        distribution = importlib.metadata.distribution(name)
        for file in distribution.files or ():
            top = file.parts[0]
            link = folder / top
            if top not in ("..", "__pycache__") and not link.exists():
                link.symlink_to(Path(str(distribution.locate_file(top))).resolve())
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONNOUSERSITE": "1"}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    # -S: without the packages of the interpreter that runs the tests
    command = [sys.executable, "-S", "-m", "benchmarks", "gpu", *arguments]
    return run_program(command, timeout=240, cwd=REPOSITORY, env=environment)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables with which Python has torch and what comes as wheels alone."""
    names = needed_by(EXPECTED).union(needed_packages())
    return environment_of(names, tmp_path_factory.mktemp("gpu") / "packages")


@pytest.fixture(scope="module")
def short_form(
    environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[str, dict[str, Any]]:
    """What the short form prints and writes, of the parts that take least."""
    file = tmp_path_factory.mktemp("found") / "found.json"
    parts = ("--only", "why_not", "--only", "copies")
    done = run(environment, *QUICK, *parts, "--json", str(file), "--commit", "0123456789")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(file.read_text())


def values_of(found: dict[str, Any], part: str) -> list[dict[str, Any]]:
    return [finding["values"] for finding in found["parts"][part]]


def test_parts_have_their_numbers(short_form: tuple[str, dict[str, Any]]) -> None:
    _, found = short_form
    assert list(found["parts"]) == ["why_not", "copies"]
    assert all(each["is_as_promised"] for part in found["parts"].values() for each in part)
    *layers, audit, without, with_switches = values_of(found, "why_not")
    assert len(layers) == 6
    assert all(layer["detaug"]["equal_twice"] and layer["detaug"]["ms"] > 0 for layer in layers)
    assert audit == {"difference": "", "operations": {}}
    assert (without["trainer"], with_switches["trainer"]) == (
        "nnUNetTrainer",
        "nnUNetTrainerDeterministic",
    )
    assert without["ms"] > 0
    assert with_switches["ms"] > 0
    assert values_of(found, "copies")[0]["different"] == []
    assert values_of(found, "copies")[0]["restarts"] == 1


def test_results_name_machine_commit_and_versions(short_form: tuple[str, dict[str, Any]]) -> None:
    environment = short_form[1]["environment"]
    assert environment["commit"] == "0123456789"
    assert environment["device"] == "cpu"
    assert environment["date"]
    assert all(environment["packages"][name] for name in ("torch", "nnunetv2", "numpy"))


def test_what_is_absent_is_said_in_its_line(short_form: tuple[str, dict[str, Any]]) -> None:
    assert "copies: pin_memory=True: not here: a GPU" in short_form[0]


def test_pages_take_their_figures_from_the_file(short_form: tuple[str, dict[str, Any]]) -> None:
    found = short_form[1]
    card = {"card": "NVIDIA H100", "driver": "580", "cudnn": 91000}
    result = {**found, "environment": {**found["environment"], **card}}
    table = gpu_table([result])
    assert table.startswith("On NVIDIA H100 (driver 580, cuDNN 91000, torch ")
    for part, findings in found["parts"].items():
        assert all(f"| {part} | {finding['name']} |" in table for finding in findings)
    assert gpu_table([]).startswith("**Not measured yet**")
    for system, milliseconds in (("nnUNetTrainer", 300), ("nnUNetTrainerDetAugFast", 150)):
        plan = {"patch": [128, 128, 128]}
        values = {"system": system, "ms_per_step": milliseconds, "workers": 8, "plan": plan}
        result["parts"].setdefault("epoch", []).append({"values": values})
    assert gpu_line([result]).endswith("| nnU-Net's own | 2.0× NVIDIA H100 |\n")
    assert gpu_line([]).endswith("| nnU-Net's own | not measured |\n")


def test_without_nnunet_its_parts_say_so() -> None:
    # as where it is not installed: no module of that name is found
    code = (
        "import importlib.util as util, runpy; found = util.find_spec\n"
        "util.find_spec = lambda name, *more: None if name == 'nnunetv2' else found(name, *more)\n"
        "runpy.run_module('benchmarks', run_name='__main__')"
    )
    arguments = ("gpu", *QUICK, "--only", "equal", "--only", "epoch")
    done = run_code(code, *arguments, folder=REPOSITORY, environment=os.environ)
    assert done.returncode == 0, done.stderr
    assert "equal: equal: not here: nnunetv2" in done.stdout
    assert "epoch: epoch: not here: nnunetv2" in done.stdout


def test_without_a_gpu_it_says_what_can_be_done() -> None:
    if Path("/dev/nvidia0").exists():
        pytest.skip("there is a GPU")
    code = "import runpy; runpy.run_module('benchmarks', run_name='__main__')"
    done = run_code(code, "gpu", folder=REPOSITORY, environment=os.environ)
    assert done.returncode == 2
    assert "torch finds no GPU here; --device cpu --quick shows that the script runs" in done.stderr


@pytest.mark.slow
def test_the_short_form_trains_and_has_every_part(
    environment: dict[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "found.json"
    done = run(environment, *QUICK, "--json", str(file))
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert "GPU not here" in done.stdout
    assert list(found["parts"]) == ["equal", "why_not", "epoch", "copies"]
    assert all(each["is_as_promised"] for part in found["parts"].values() for each in part)
    (equal,) = values_of(found, "equal")
    assert len(equal["first_difference"]) == 2
    assert not any(equal["first_difference"].values())
    for epoch in values_of(found, "epoch"):
        assert epoch["ms_per_step"] > 0
        assert 0 <= epoch["share_waiting"] <= 1
        assert epoch["gpu_percent"] is None


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_trainings_are_equal_on_a_cpu(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    arguments = ["--device", "cpu", "--minutes", "25", "--only", "equal", "--only", "copies"]
    command = [sys.executable, "-m", "benchmarks", "gpu", *arguments, "--json", str(file)]
    done = run_program(command, timeout=1750, cwd=REPOSITORY)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    equal = {each["name"]: each["values"]["first_difference"] for each in found["parts"]["equal"]}
    assert len(equal) == 6
    for name, differences in equal.items():
        assert "Trainer, " in name or not any(differences.values())
    copies = values_of(found, "copies")[0]
    assert (copies["batches"], copies["kills"], copies["different"]) == (500, 10, [])
