"""Advice of `detaug --version --verbose`: rules over the record that `environment` gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from detaug.training.switches import CUBLAS_ALLOWED
from detaug.versions import SUPPORTED_NNUNET


def advice(environment: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each setting that makes results depend on more than code and seed.

    Args:
        environment: as `detaug.training.environment` returns it.
    """
    variables = environment["variables"]
    # Nothing reads these variables without CUDA, so advice on them would mislead.
    if environment["gpu"]["devices"] and environment["gpu"]["cuda"]:
        yield from _on_gpus(variables, len(environment["gpu"]["devices"]))
    yield from _chosen_by_timing(variables)
    yield from _versions(environment["packages"]["nnunetv2"])
    if environment["kernel_cache"]["folder"] is None:
        yield (
            "compile cache: no folder for compiled kernels can be written to, so that every process"
            " compiles its own: set NUMBA_CACHE_DIR to one that can be"
        )
    # The number of cores decides the number of threads, and that the order of sums.
    if "OMP_NUM_THREADS" not in variables:
        threads = environment["threads"]["torch"]
        yield (
            f"threads: torch uses {threads} threads, by the number of cores, and sums on the CPU"
            " change with it: set OMP_NUM_THREADS for trainings that must be reproducible on"
            " another machine"
        )
    if variables.get("PYTHONHASHSEED", "random") == "random":
        yield (
            "hash seed: code that loops over sets of strings depends on it: export PYTHONHASHSEED=0"
        )


def _on_gpus(variables: Mapping[str, str], num_gpus: int) -> Iterator[str]:
    """Yield advice on variables that matter where GPUs compute."""
    if variables.get("CUBLAS_WORKSPACE_CONFIG") not in CUBLAS_ALLOWED:
        yield (
            "cuBLAS: it is reproducible with export CUBLAS_WORKSPACE_CONFIG=:4096:8 alone, set"
            " before CUDA starts"
        )
    if variables.get("NVIDIA_TF32_OVERRIDE") == "1":
        yield "TF32: NVIDIA_TF32_OVERRIDE=1 forces it on, whatever is set in torch: unset it"
    # NVLS adds in the switch, in an order of its own.
    is_nccl_set = "NCCL_ALGO" in variables and variables.get("NCCL_NVLS_ENABLE") == "0"
    if num_gpus > 1 and not is_nccl_set:
        yield (
            "NCCL: with several GPUs it may add up in another order (pytorch #154880): export"
            " NCCL_ALGO=Ring NCCL_NVLS_ENABLE=0"
        )


def _chosen_by_timing(variables: Mapping[str, str]) -> Iterator[str]:
    """Yield advice on variables that let torch choose kernels by how fast they are just now."""
    if variables.get("PYTORCH_TUNABLEOP_ENABLED") == "1":
        yield "TunableOp: it picks matrix products by timing: unset PYTORCH_TUNABLEOP_ENABLED"
    # The values that nnU-Net takes for true.
    if variables.get("nnUNet_compile", "").lower() in ("true", "1", "t"):
        yield "torch.compile: it may pick kernels by timing: export nnUNet_compile=f"
    if variables.get("TORCHINDUCTOR_MAX_AUTOTUNE") == "1":
        yield "torch.compile: TORCHINDUCTOR_MAX_AUTOTUNE=1 picks kernels by timing: unset it"


def _versions(nnunet: str | None) -> Iterator[str]:
    """Yield advice on a version of nnunetv2 that is not supported; None: it is not installed."""
    supported = tuple(f"{version}." for version in SUPPORTED_NNUNET)
    if nnunet is None or nnunet.startswith(supported):
        return
    known = " or ".join(f"{version}x" for version in supported)
    yield (
        f"nnU-Net: nnunetv2 {nnunet} is not {known}, which detaug.nnunet supports: pip install"
        " 'detaug[nnunet]'"
    )
