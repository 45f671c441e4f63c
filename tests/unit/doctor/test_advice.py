"""Every rule of the doctor's advice, on made-up records: where it speaks up, and where it does not."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from detaug.doctor.advice import advice

GIB = 2**30
WORKSTATION: dict[str, Any] = {
    "packages": {"nnunetv2": "2.8.1"},
    "cpu": {"usable_cores": 16, "logical_cores": 16},
    "gpu": {"devices": [{"name": "A100"}], "cuda": "12.4", "cuda_started": False},
    "threads": {"torch": 8},
    "switches": {
        "torch.use_deterministic_algorithms": True,
        "torch.backends.cudnn.benchmark": False,
        "torch.cuda.tunable": False,
        "torch.backends.cuda.matmul.allow_tf32": False,
        "torch.backends.cudnn.allow_tf32": False,
    },
    "variables": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8", "OMP_NUM_THREADS": "8", "PYTHONHASHSEED": "0"},
    "multiprocessing": {"start_method": None, "default_start_method": "fork"},
    "shared_memory": {"total": 32 * GIB, "free": 30 * GIB},
    "open_files": {"soft": 65536, "hard": 65536},
    "kernel_cache": {"folder": "~/cache", "writable": True, "kernels": 45, "compiled": 45, "warm": True},
}


def changed(**changes: Any) -> dict[str, Any]:
    """The workstation's record; a dict is merged, anything else replaces."""
    record = copy.deepcopy(WORKSTATION)
    for key, value in changes.items():
        if isinstance(value, dict) and isinstance(record.get(key), dict):
            record[key] = {**record[key], **value}
        else:
            record[key] = value
    return record


def found(record: dict[str, Any]) -> dict[str, str]:
    return {each.topic: each.level for each in advice(record) if each.level != "ok"}


def test_nothing_is_said_against_a_machine_that_is_well_set() -> None:
    assert found(WORKSTATION) == {}
    assert len(advice(WORKSTATION)) >= 8


@pytest.mark.parametrize(
    ("change", "topic", "level", "says"),
    [
        (
            {"shared_memory": {"total": 64 * 2**20, "free": 60 * 2**20}},
            "shared memory",
            "note",
            "detaug needs none of it",
        ),
        ({"shared_memory": {"free": GIB}}, "shared memory", "note", "1.0 GiB free of 32.0 GiB"),
        ({"cpu": {"usable_cores": 8, "logical_cores": 8}}, "cores", "note", "nnU-Net's default of 12 .* 8 usable"),
        ({"variables": {"nnUNet_n_proc_DA": "24"}}, "cores", "note", "nnUNet_n_proc_DA=24 is more than the 16"),
        ({"variables": {"nnUNet_n_proc_DA": "many"}}, "cores", "warning", "'many' is no number"),
        ({"cpu": {"logical_cores": 64}}, "cores", "note", "16 of 64 cores may be used"),
        ({"gpu": {"cuda_started": True}}, "start method", "note", "forked workers cannot use it"),
        ({"kernel_cache": {"compiled": 3, "warm": False}}, "compile cache", "note", "3 of 45 .*`detaug warmup`"),
        (
            {"kernel_cache": {"compiled": 0, "warm": False, "writable": False}},
            "compile cache",
            "warning",
            "no folder .*NUMBA_CACHE_DIR",
        ),
        ({"switches": {"torch.use_deterministic_algorithms": False}}, "deterministic mode", "note", "is off"),
        ({"switches": {"torch.use_deterministic_algorithms": "warn"}}, "deterministic mode", "note", "only warns"),
        ({"switches": {"torch.backends.cudnn.benchmark": True}}, "cuDNN", "warning", "by timing"),
        ({"switches": {"torch.cuda.tunable": True}}, "TunableOp", "warning", "by timing"),
        ({"variables": {"CUBLAS_WORKSPACE_CONFIG": None}}, "cuBLAS", "warning", "is not set: export"),
        ({"variables": {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}}, "cuBLAS", "warning", "not reproducible"),
        ({"switches": {"torch.backends.cudnn.allow_tf32": True}}, "TF32", "note", "cudnn.allow_tf32 on"),
        ({"variables": {"NVIDIA_TF32_OVERRIDE": "1"}}, "TF32", "warning", "unset it"),
        ({"gpu": {"devices": [{}, {}]}}, "NCCL", "warning", "NCCL_NVLS_ENABLE=0"),
        ({"variables": {"OMP_NUM_THREADS": None}}, "threads", "note", "OMP_NUM_THREADS is not set"),
        ({"threads": {"torch": 32}}, "threads", "note", "32 threads on 16"),
        ({"open_files": {"soft": 256}}, "open files", "note", "only 256 .*ulimit -n"),
        ({"packages": {"nnunetv2": "2.4.2"}}, "nnU-Net", "warning", r"2\.4\.2 is not 2\.5\.x or .* or 2\.8\.x"),
        ({"packages": {"nnunetv2": "2.80.0"}}, "nnU-Net", "warning", r"2\.80\.0"),
        ({"variables": {"nnUNet_compile": "true"}}, "torch.compile", "warning", "nnUNet_compile=f"),
        ({"variables": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}}, "torch.compile", "warning", "unset it"),
        ({"variables": {"PYTHONHASHSEED": "random"}}, "hash seed", "note", "PYTHONHASHSEED"),
    ],
)
def test_each_fault_is_named_alone_with_what_to_do(change: dict[str, Any], topic: str, level: str, says: str) -> None:
    import re

    record = changed(**change)
    assert found(record) == {topic: level}
    texts = [each.text for each in advice(record) if each.topic == topic and each.level == level]
    assert len(texts) == 1
    assert re.search(says, texts[0]), texts[0]


@pytest.mark.parametrize(
    "change",
    [
        {"variables": {"nnUNet_n_proc_DA": "4"}, "cpu": {"usable_cores": 8, "logical_cores": 8}},
        {"gpu": {"devices": [{}, {}]}, "variables": {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"}},
        {"gpu": {"devices": []}, "variables": {"CUBLAS_WORKSPACE_CONFIG": None, "NVIDIA_TF32_OVERRIDE": "1"}},
        {"kernel_cache": {"writable": False}},
        {"variables": {"nnUNet_compile": "f"}},
        {"packages": {"nnunetv2": None}},
        {"shared_memory": None, "open_files": None},
        {"open_files": {"soft": None}},
        {"gpu": {"cuda_started": True}, "multiprocessing": {"start_method": "spawn"}},
    ],
)
def test_what_does_no_harm_is_not_complained_of(change: dict[str, Any]) -> None:
    assert found(changed(**change)) == {}


def test_warnings_come_first() -> None:
    record = changed(open_files={"soft": 256}, switches={"torch.backends.cudnn.benchmark": True})
    levels = [each.level for each in advice(record)]
    assert levels == sorted(levels, key=("warning", "note", "ok").index)
    assert levels[:2] == ["warning", "note"]


def test_an_empty_record_is_fine() -> None:
    assert {each.level for each in advice({})} <= {"note"}
