"""Every rule of the advice, on invented records of machines with one fault or none."""

from __future__ import annotations

from typing import Any

import pytest

from detaug.tools.advice import advice

VARIABLES = {
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
    "OMP_NUM_THREADS": "8",
    "PYTHONHASHSEED": "0",
}


def record(
    *, gpus: int = 1, nnunet: str | None = "2.8.1", folder: str | None = "~/cache", **variables: Any
) -> dict[str, Any]:
    """Return the record of a workstation without a fault, except for the arguments.

    Args:
        gpus: number of GPUs.
        nnunet: version of nnU-Net, or None.
        folder: of compiled kernels, or None.
        variables: of the environment; None removes one.
    """
    merged = {**VARIABLES, **variables}
    return {
        "packages": {"nnunetv2": nnunet},
        "gpu": {"devices": [{"name": "A100"}] * gpus, "cuda": "12.4"},
        "threads": {"torch": 8},
        "variables": {name: value for name, value in merged.items() if value is not None},
        "kernel_cache": {"folder": folder, "kernels": 45, "compiled": 45},
    }


@pytest.mark.parametrize(
    ("machine", "topic", "text"),
    [
        (record(folder=None), "compile cache", "NUMBA_CACHE_DIR"),
        (record(PYTORCH_TUNABLEOP_ENABLED="1"), "TunableOp", "by timing"),
        (record(CUBLAS_WORKSPACE_CONFIG=None), "cuBLAS", "CUBLAS_WORKSPACE_CONFIG=:4096:8"),
        (record(CUBLAS_WORKSPACE_CONFIG=":0:0"), "cuBLAS", ":4096:8 alone"),
        (record(NVIDIA_TF32_OVERRIDE="1"), "TF32", "unset it"),
        (record(gpus=2), "NCCL", "NCCL_NVLS_ENABLE=0"),
        (record(OMP_NUM_THREADS=None), "threads", "torch uses 8 threads"),
        (record(nnunet="2.80.0"), "nnU-Net", "2.80.0 is not 2.8.x"),
        (record(nnUNet_compile="true"), "torch.compile", "nnUNet_compile=f"),
        (record(TORCHINDUCTOR_MAX_AUTOTUNE="1"), "torch.compile", "unset it"),
        (record(PYTHONHASHSEED="random"), "hash seed", "export PYTHONHASHSEED=0"),
        (record(PYTHONHASHSEED=None), "hash seed", "export PYTHONHASHSEED=0"),
    ],
)
def test_each_fault_is_named_alone_with_what_to_do(
    machine: dict[str, Any], topic: str, text: str
) -> None:
    (sentence,) = advice(machine)
    assert sentence.startswith(f"{topic}: ")
    assert text in sentence


@pytest.mark.parametrize(
    "machine",
    [
        record(),
        record(gpus=2, NCCL_ALGO="Ring", NCCL_NVLS_ENABLE="0"),
        record(gpus=0, CUBLAS_WORKSPACE_CONFIG=None, NVIDIA_TF32_OVERRIDE="1"),
        record(nnUNet_compile="f"),
        record(nnunet=None),
    ],
)
def test_what_does_no_harm_is_not_complained_of(machine: dict[str, Any]) -> None:
    assert list(advice(machine)) == []
