"""The advice of `detaug doctor`: rules over the record that `environment` gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from detaug.training.switches import CUBLAS_ALLOWED
from detaug.versions import SUPPORTED_NNUNET


class Advice(NamedTuple):
    """A warning: results may not be reproducible, or a run may fail; a note: worth knowing."""

    level: Literal["warning", "note"]
    topic: str
    text: str


def advice(environment: Mapping[str, Any]) -> list[Advice]:
    """Advice on a record of `environment`, warnings first."""
    warnings = [Advice("warning", *each) for each in _warnings(environment)]
    return warnings + [Advice("note", *each) for each in _notes(environment)]


def _warnings(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    switches, variables, cache = (
        environment[name] for name in ("switches", "variables", "kernel_cache")
    )
    devices = environment["gpu"]["devices"] if environment["gpu"]["cuda"] else ()
    if switches.get("torch.backends.cudnn.benchmark"):
        yield "cuDNN", "torch.backends.cudnn.benchmark picks convolutions by timing: switch it off"
    if switches.get("torch.cuda.tunable"):
        yield "TunableOp", "it picks matrix products by timing: unset PYTORCH_TUNABLEOP_ENABLED"
    if devices and variables.get("CUBLAS_WORKSPACE_CONFIG") not in CUBLAS_ALLOWED:
        yield (
            "cuBLAS",
            "it is reproducible with export CUBLAS_WORKSPACE_CONFIG=:4096:8 alone, set before CUDA starts",
        )
    if devices and variables.get("NVIDIA_TF32_OVERRIDE") == "1":
        yield "TF32", "NVIDIA_TF32_OVERRIDE=1 forces it on, whatever is set in torch: unset it"
    if len(devices) > 1 and not (
        "NCCL_ALGO" in variables and variables.get("NCCL_NVLS_ENABLE") == "0"
    ):
        text = "with several GPUs it may add up in another order (pytorch #154880): export NCCL_ALGO=Ring NCCL_NVLS_ENABLE=0"
        yield "NCCL", text
    if str(variables.get("nnUNet_compile")).lower() in ("true", "1", "t"):
        yield "torch.compile", "it may pick kernels by timing: export nnUNet_compile=f"
    if variables.get("TORCHINDUCTOR_MAX_AUTOTUNE") == "1":
        yield "torch.compile", "TORCHINDUCTOR_MAX_AUTOTUNE=1 picks kernels by timing: unset it"
    nnunet = environment["packages"]["nnunetv2"]
    if nnunet and not nnunet.startswith(tuple(f"{each}." for each in SUPPORTED_NNUNET)):
        known = " or ".join(f"{each}.x" for each in SUPPORTED_NNUNET)
        yield (
            "nnU-Net",
            f"nnunetv2 {nnunet} is not {known}, which detaug.nnunet supports: pip install 'detaug[nnunet]'",
        )
    if not variables.get("nnUNet_n_proc_DA", "0").isdigit():
        yield (
            "nnU-Net",
            f"nnUNet_n_proc_DA={variables['nnUNet_n_proc_DA']!r} is no number: unset it",
        )
    if cache["folder"] is None:
        yield (
            "compile cache",
            "no folder for compiled kernels can be written to: set NUMBA_CACHE_DIR to one that can be",
        )


def _notes(environment: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    variables, cache = environment["variables"], environment["kernel_cache"]
    if cache["folder"] is not None and cache["compiled"] < cache["kernels"]:
        yield (
            "compile cache",
            f"{cache['compiled']} of {cache['kernels']} kernels are compiled: run `detaug warmup`",
        )
    if "OMP_NUM_THREADS" not in variables:
        text = f"torch uses {environment['threads']['torch']} threads, by the number of cores, and sums on the CPU change with it"
        yield (
            "threads",
            f"{text}: set OMP_NUM_THREADS for trainings that must be reproducible on another machine",
        )
    if variables.get("PYTHONHASHSEED", "random") == "random":
        yield (
            "hash seed",
            "code that loops over sets of strings depends on it: export PYTHONHASHSEED=0",
        )
