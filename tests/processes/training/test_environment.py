"""`environment`: what is in the record, what is not, and that asking changes nothing."""

from __future__ import annotations

import getpass
import importlib.metadata
import json
import os
import platform
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from detaug.kernels import cache
from detaug.system import limits
from detaug.training import machine
from detaug.training.machine import environment
from detaug.versions import NUMERICS, SEED_SCHEME, __version__, source_digest
from tests.support.preloaded import run_code


def test_record_is_json_and_says_what_is_installed_and_set() -> None:
    record = environment()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["detaug"] == {
        "version": __version__,
        "source": source_digest(),
        "seed_scheme": SEED_SCHEME,
        "numerics": NUMERICS,
    }
    assert record["python"]["version"] == platform.python_version()
    packages = record["packages"]
    assert (packages["torch"], packages["numpy"]) == (torch.__version__, np.__version__)
    assert packages["batchgenerators"] == importlib.metadata.version("batchgenerators")
    assert {"scipy", "numba", "batchgeneratorsv2", "nnunetv2"} <= set(packages)
    assert record["cpu"]["torch_capability"] == torch.backends.cpu.get_cpu_capability()
    assert 1 <= record["cpu"]["usable_cores"] <= record["cpu"]["logical_cores"]
    assert record["numpy"]["cpu_features"]
    assert any(pool["user_api"] == "blas" for pool in record["blas"])
    before = torch.get_num_threads()
    assert record["threads"]["torch"] == before
    try:
        torch.set_num_threads(before + 1)
        assert environment()["threads"]["torch"] == before + 1
    finally:
        torch.set_num_threads(before)


def test_affinity_and_the_control_groups_quota_limit_the_usable_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    granted = {"cpu.max": ["250000 100000", "max 100000"]}
    monkeypatch.setattr(
        limits, "control_group_lines", lambda file, controller="": granted.get(file, [])
    )
    for bound_to, usable in ((8, 2), (1, 1)):
        monkeypatch.setattr(
            os, "sched_getaffinity", lambda _, number=bound_to: set(range(number)), raising=False
        )
        assert environment()["cpu"]["usable_cores"] == usable


def test_switches_are_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "benchmark", True)
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    monkeypatch.setenv("nnUNet_n_proc_DA", "3")
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    torch.set_deterministic_debug_mode("warn")
    try:
        record = environment()
    finally:
        torch.set_deterministic_debug_mode("default")
    assert record["switches"]["torch.use_deterministic_algorithms"] == "warn"
    assert record["switches"]["torch.backends.cudnn.benchmark"] is True
    assert record["variables"]["CUBLAS_WORKSPACE_CONFIG"] == ":16:8"
    assert record["variables"]["nnUNet_n_proc_DA"] == "3"
    assert "PYTHONHASHSEED" not in record["variables"]
    assert environment()["switches"]["torch.use_deterministic_algorithms"] is False


def test_no_host_user_or_home_is_in_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "jane.doe"))
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "jane.doe" / "cache"))
    monkeypatch.setenv("HOSTNAME", "ward-7.hospital.example")
    monkeypatch.setattr(platform, "node", lambda: "ward-7.hospital.example")
    record = environment()
    text = json.dumps(record)
    assert record["kernel_cache"]["folder"] == "~/cache/detaug"
    assert "jane.doe" not in text
    assert "hospital" not in text
    if len(getpass.getuser()) > 4:
        assert getpass.getuser() not in text


def test_asking_changes_nothing_and_loads_nothing_heavy(tmp_path: Path) -> None:
    # in a fresh process, where nothing is fixed yet
    code = """
import json, multiprocessing, os, random, sys, warnings
import numpy as np, threadpoolctl, torch  # which sets KMP_DUPLICATE_LIB_OK
from detaug.training.machine import environment
warnings.simplefilter("error")
def state():
    return [multiprocessing.get_start_method(allow_none=True), torch.cuda.is_initialized(), dict(os.environ),
            torch.get_num_threads(), torch.get_rng_state().tolist(), str(random.getstate()), str(np.random.get_state())]
before = state()
first, second = environment(), environment()
for old, new in zip(before, state()):
    assert old == new, (old, new)
assert first["switches"] == second["switches"] and first["variables"] == second["variables"]
heavy = {"numba", "scipy", "nnunetv2", "batchgeneratorsv2", "torch._dynamo", "torch._inductor"} & set(sys.modules)
assert not heavy, heavy
"""
    done = run_code(code, folder=tmp_path, environment=os.environ)
    assert done.returncode == 0, done.stderr


def test_compiled_kernels_are_counted_for_this_source_and_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    now = tmp_path / "detaug" / cache.source_digest("median") / "kernels_0"
    old = tmp_path / "detaug" / "0123456789abcdef" / "kernels_0"
    for folder in (now, old):
        folder.mkdir(parents=True)
        (folder / f"median.median_filter-10.{version}.nbi").touch()
        (folder / "median.median_filter-10.py27.nbi").touch()
    assert environment()["kernel_cache"]["compiled"] == 1


def test_cards_are_read_from_the_driver_s_list(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = "GPU 0: NVIDIA A100-SXM4-40GB\nGPU 1: Odd: name\n\n"
    monkeypatch.setattr(machine.collect_env, "get_gpu_info", lambda run: listed)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    names = [each["name"] for each in environment()["gpu"]["devices"]]
    assert names == ["NVIDIA A100-SXM4-40GB", "Odd: name"]


def test_processors_with_one_name_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "model name\t: AMD EPYC\ncpu family\t: 25\nmodel\t\t: {}\n"
    for number in (17, 160):
        monkeypatch.setattr(
            machine, "lines", lambda _, number=number: text.format(number).splitlines()
        )
        assert machine.cpu_model() == f"AMD EPYC, family 25, model {number}"
