"""Every rule of the doctor's advice, on made-up records: where it speaks up, and where it does not."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest

from detaug.doctor.advice import advice

WORKSTATION: dict[str, Any] = {
    "packages": {"nnunetv2": "2.8.1"},
    "gpu": {"devices": [{"name": "A100"}], "cuda": "12.4"},
    "threads": {"torch": 8},
    "switches": {"torch.backends.cudnn.benchmark": False, "torch.cuda.tunable": False},
    "variables": {
        "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        "OMP_NUM_THREADS": "8",
        "PYTHONHASHSEED": "0",
    },
    "kernel_cache": {"folder": "~/cache", "kernels": 45, "compiled": 45},
}


def changed(**changes: Any) -> dict[str, Any]:
    """The workstation's record; a dict is merged (None removes a key), anything else replaces."""
    record = copy.deepcopy(WORKSTATION)
    for key, value in changes.items():
        if isinstance(value, dict):
            record[key] = {
                name: each for name, each in {**record[key], **value}.items() if each is not None
            }
        else:
            record[key] = value
    return record


def test_nothing_is_said_against_a_machine_that_is_well_set() -> None:
    assert advice(WORKSTATION) == []


@pytest.mark.parametrize(
    ("change", "topic", "level", "says"),
    [
        ({"variables": {"nnUNet_n_proc_DA": "many"}}, "nnU-Net", "warning", "'many' is no number"),
        ({"kernel_cache": {"compiled": 3}}, "compile cache", "note", "3 of 45 .*`detaug warmup`"),
        (
            {"kernel_cache": {"compiled": 0, "kernels": 45, "folder": None}},
            "compile cache",
            "warning",
            "NUMBA_CACHE_DIR",
        ),
        ({"switches": {"torch.backends.cudnn.benchmark": True}}, "cuDNN", "warning", "by timing"),
        ({"switches": {"torch.cuda.tunable": True}}, "TunableOp", "warning", "by timing"),
        (
            {"variables": {"CUBLAS_WORKSPACE_CONFIG": None}},
            "cuBLAS",
            "warning",
            "export CUBLAS_WORKSPACE_CONFIG",
        ),
        ({"variables": {"CUBLAS_WORKSPACE_CONFIG": ":0:0"}}, "cuBLAS", "warning", ":4096:8 alone"),
        ({"variables": {"NVIDIA_TF32_OVERRIDE": "1"}}, "TF32", "warning", "unset it"),
        ({"gpu": {"devices": [{}, {}]}}, "NCCL", "warning", "NCCL_NVLS_ENABLE=0"),
        (
            {"variables": {"OMP_NUM_THREADS": None}},
            "threads",
            "note",
            "torch uses 8 threads.*OMP_NUM_THREADS",
        ),
        ({"packages": {"nnunetv2": "2.80.0"}}, "nnU-Net", "warning", r"2\.80\.0 is not 2\.8\.x"),
        ({"variables": {"nnUNet_compile": "true"}}, "torch.compile", "warning", "nnUNet_compile=f"),
        (
            {"variables": {"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}},
            "torch.compile",
            "warning",
            "unset it",
        ),
        ({"variables": {"PYTHONHASHSEED": "random"}}, "hash seed", "note", "PYTHONHASHSEED"),
        ({"variables": {"PYTHONHASHSEED": None}}, "hash seed", "note", "PYTHONHASHSEED"),
    ],
)
def test_each_fault_is_named_alone_with_what_to_do(
    change: dict[str, Any], topic: str, level: str, says: str
) -> None:
    record = changed(**change)
    if record["kernel_cache"].get("folder") is None:
        record["kernel_cache"]["folder"] = None
    (found,) = advice(record)
    assert (found.topic, found.level) == (topic, level)
    assert re.search(says, found.text), found.text


@pytest.mark.parametrize(
    "change",
    [
        {"variables": {"nnUNet_n_proc_DA": "4"}},
        {"gpu": {"devices": [{}, {}]}, "variables": {"NCCL_ALGO": "Ring", "NCCL_NVLS_ENABLE": "0"}},
        {
            "gpu": {"devices": []},
            "variables": {"CUBLAS_WORKSPACE_CONFIG": None, "NVIDIA_TF32_OVERRIDE": "1"},
        },
        {"variables": {"nnUNet_compile": "f"}},
        {"packages": {"nnunetv2": "2.8.0"}},
    ],
)
def test_what_does_no_harm_is_not_complained_of(change: dict[str, Any]) -> None:
    assert advice(changed(**change)) == []


def test_warnings_come_first() -> None:
    record = changed(
        kernel_cache={"compiled": 3}, switches={"torch.backends.cudnn.benchmark": True}
    )
    assert [each.level for each in advice(record)] == ["warning", "note"]
