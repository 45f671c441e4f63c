"""`environment`: versions, machine and settings that results depend on, as a JSON-able record."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import sys
from typing import Any

import numpy as np
import torch
from torch.utils import collect_env

from detaug.kernels.cache import cache_folder, count_kernels
from detaug.system.limits import lines, usable_cores
from detaug.training.switches import chosen_switches
from detaug.versions import NUMERICS, SEED_SCHEME, __version__, source_digest

PACKAGES = (
    "torch",
    "numpy",
    "scipy",
    "numba",
    "llvmlite",
    "batchgenerators",
    "batchgeneratorsv2",
    "nnunetv2",
    "dynamic-network-architectures",
    "monai",
    "torchio",
    "lightning",
    "pytorch-lightning",
)

#: Variables of the environment that change results, speed or the number of processes.
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "CUDNN_DETERMINISTIC",
    "DETAUG_SEED",
    "KMP_AFFINITY",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NCCL_ALGO",
    "NCCL_NVLS_ENABLE",
    "NCCL_PROTO",
    "NPY_DISABLE_CPU_FEATURES",
    "NPY_ENABLE_CPU_FEATURES",
    "NUMBA_CPU_FEATURES",
    "NUMBA_CPU_NAME",
    "NUMBA_DISABLE_JIT",
    "NUMBA_NUM_THREADS",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_NUM_THREADS",
    "OPENBLAS_CORETYPE",
    "OPENBLAS_NUM_THREADS",
    "PYTHONHASHSEED",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
    "PYTORCH_TUNABLEOP_ENABLED",
    "TORCHDYNAMO_DISABLE",
    "TORCHINDUCTOR_DETERMINISTIC",
    "TORCHINDUCTOR_MAX_AUTOTUNE",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE",
    "TORCH_COMPILE_DISABLE",
    "TORCH_CUDNN_SDPA_ENABLED",
    "TORCH_CUDNN_V8_API_DISABLED",
    "nnUNet_compile",
    "nnUNet_def_n_proc",
    "nnUNet_n_proc_DA",
)


def environment() -> dict[str, Any]:
    """Return versions, CPU and its dispatch level, GPU, threads and all determinism switches.

    For records of experiments and bug reports: JSON-able, with None for what is not there or cannot
    be found out. It holds no host name, user name or address; its only path is the kernels' cache
    folder, with the user's home as ``~``, which is made where it is missing. Nothing else is
    changed by asking: no CUDA context is made (graphics cards are read from the driver's
    ``nvidia-smi`` unless this process uses CUDA already).

    Keys, what changes batches most easily first: ``detaug``, ``packages``, ``variables`` (those
    that are set), ``cpu``, ``numpy``, ``python``, ``system``, ``gpu``, ``blas``, ``switches`` (by
    the names that `deterministic_mode` uses), ``threads``, ``kernel_cache``.
    """
    return {
        "detaug": {
            "version": __version__,
            "source": source_digest(),
            "seed_scheme": SEED_SCHEME,
            "numerics": NUMERICS,
        },
        # torch's own number has the build, such as +cu130, which the distribution's may lack.
        "packages": {
            **{name: version_of(name) for name in PACKAGES},
            "torch": torch.__version__,
        },
        "variables": {name: os.environ[name] for name in VARIABLES if name in os.environ},
        "cpu": {
            "model": cpu_model(),
            "architecture": platform.machine(),
            "logical_cores": os.cpu_count(),
            "usable_cores": usable_cores(),
            "torch_capability": torch.backends.cpu.get_cpu_capability(),
        },
        "numpy": {"cpu_features": numpy_features()},
        "python": {
            "version": platform.python_version(),
            "implementation": platform.python_implementation(),
        },
        "system": {
            "name": platform.system(),
            "release": platform.release(),
            "libc": " ".join(platform.libc_ver()),
        },
        "gpu": _graphics_cards(),
        "blas": _blas(),
        "switches": {
            **{switch.name: switch.read() for switch in chosen_switches(True)},
            "torch.backends.cudnn.enabled": torch.backends.cudnn.enabled,
        },
        "threads": {
            "torch": torch.get_num_threads(),
            "torch_interop": torch.get_num_interop_threads(),
        },
        "kernel_cache": _kernel_cache(),
    }


def cpu_model() -> str:
    """Return name, family and model of the CPU, for many kinds of processors share a name."""
    # Not `platform.processor()`: on most Linux systems it is empty or only the architecture.
    entries: dict[str, str] = {}
    for line in lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        # The first core's: they stand first.
        entries.setdefault(name.strip(), value.strip())
    if "model name" not in entries:
        return platform.processor() or platform.machine()
    family = entries.get("cpu family")
    return f"{entries['model name']}, family {family}, model {entries.get('model')}"


def version_of(package: str) -> str | None:
    """Return the version of an installed distribution, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def numpy_features() -> list[str] | None:
    """Return the vector instructions that NumPy chooses its code by; None: they are not known."""
    core = getattr(np, "_core", None) or np.core
    features = getattr(core._multiarray_umath, "__cpu_features__", None)
    if not features:
        return None
    return sorted(name for name, enabled in features.items() if enabled)


def _blas() -> list[dict[str, Any]]:
    """Return the BLAS and OpenMP libraries that are loaded in this process, and their threads."""
    import threadpoolctl

    # Without the path of the library's file, which may have a user's name.
    pools = []
    for pool in threadpoolctl.threadpool_info():
        pools.append({name: pool[name] for name in sorted(pool) if name != "filepath"})
    return sorted(pools, key=str)


def _graphics_card_names() -> list[str]:
    """Return the names of the graphics cards, without starting CUDA.

    A process that has asked CUDA anything cannot fork workers that use it, so the driver is asked.
    """
    if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        return [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    if torch.version.hip is not None or sys.platform == "darwin":
        # collect_env would start the device there.
        return []
    # collect_env asks nvidia-smi, so that CUDA is not initialised in this process.
    listed = collect_env.get_gpu_info(collect_env.run) or ""  # type: ignore[no-untyped-call]
    lines_of_cards = [line for line in listed.splitlines() if line.startswith("GPU ")]
    return [line.partition(":")[2].strip() for line in lines_of_cards]


def _graphics_cards() -> dict[str, Any]:
    """Return the cards, the driver's version and CUDA's."""
    driver = collect_env.get_nvidia_driver_version(collect_env.run)  # type: ignore[no-untyped-call]
    # torch.backends.cudnn.version() would start CUDA: it asks the cards whether they suit cuDNN.
    cudnn = getattr(torch._C, "_cudnn", None)
    return {
        "devices": [{"name": name} for name in _graphics_card_names()],
        "driver": driver,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": cudnn and cudnn.getVersionInt(),
    }


def _kernel_cache() -> dict[str, Any]:
    """Return how many of the transforms' kernels are compiled already, found without Numba."""
    folder = cache_folder()
    kernels, compiled = count_kernels(folder)
    name = None
    if folder is not None:
        # The record must not have the user's name.
        name = str(folder).replace(os.path.expanduser("~"), "~", 1)
    return {"folder": name, "kernels": kernels, "compiled": compiled}
