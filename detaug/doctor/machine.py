"""`environment`: what a result depends on besides the code and the seed, as one JSON-able record."""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import platform
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.doctor.graphics_cards import graphics_cards
from detaug.doctor.kernel_cache import kernel_cache, without_home
from detaug.processes import cores
from detaug.training.switches.table import chosen_switches
from detaug.versions import NUMERICS, SEED_SCHEME, __version__

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
    "lightning",
    "threadpoolctl",
    "xxhash",
)

#: Of the environment's variables, those that change results, speed or the number of processes; what is shown of
#: them names no person (`_without_home`).
VARIABLES = (
    "ATEN_CPU_CAPABILITY",
    "CUBLAS_WORKSPACE_CONFIG",
    "CUDA_LAUNCH_BLOCKING",
    "CUDA_VISIBLE_DEVICES",
    "CUDNN_DETERMINISTIC",
    "DETAUG_CASE_CACHE",
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
    """Versions, CPU and its dispatch level, GPU and driver, threads, memory and all determinism switches, as they are.

    For records of experiments and bug reports: JSON-able (`json.dumps(..., allow_nan=False)`), with None for what is not there or
    cannot be found out. It holds no host name, user name or address; its paths are the kernels' cache folder and the
    case cache's, with the user's home as ``~``. Nothing is changed by asking: no CUDA context is made (graphics cards are read
    from the driver's ``nvidia-smi`` unless this process uses CUDA already), and no start method is fixed. Sizes are in bytes.

    Keys: ``detaug``, ``python``, ``system``, ``packages``, ``cpu``, ``numpy``, ``blas``, ``gpu``, ``threads``,
    ``switches`` (by the names that `deterministic_mode` uses), ``variables`` (those that are set),
    ``multiprocessing``, ``memory``, ``shared_memory``, ``open_files``, ``kernel_cache``.
    """
    return {
        "detaug": {"version": __version__, "seed_scheme": SEED_SCHEME, "numerics": NUMERICS},
        "python": {"version": platform.python_version(), "implementation": platform.python_implementation()},
        "system": _system(),
        "packages": {**{name: _version(name) for name in PACKAGES}, "torch": torch.__version__},
        "cpu": _cpu(),
        "numpy": {"cpu_features": _numpy_features()},
        "blas": _blas(),
        "gpu": graphics_cards(),
        "threads": {"torch": torch.get_num_threads(), "torch_interop": torch.get_num_interop_threads()},
        "switches": _switches(),
        "variables": {name: _without_home(os.environ[name]) for name in VARIABLES if name in os.environ},
        "multiprocessing": {
            "start_method": multiprocessing.get_start_method(allow_none=True),
            "default_start_method": multiprocessing.get_all_start_methods()[0],
        },
        "memory": _memory(),
        "shared_memory": _shared_memory(),
        "open_files": _open_files(),
        "kernel_cache": kernel_cache(),
    }


def _without_home(value: str) -> str:
    """A variable's value; of the case cache's, a size and a folder, the folder without the user's name."""
    size, colon, folder = value.partition(":")
    return f"{size}:{without_home(Path(folder))}" if colon and Path(folder).is_absolute() else value


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _system() -> dict[str, Any]:
    libc = " ".join(platform.libc_ver()).strip()
    return {
        "name": platform.system(),
        "release": platform.release(),
        "distribution": _distribution(),
        "libc": libc or None,
    }


def _distribution() -> str | None:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME")
    except OSError:
        return f"macOS {platform.mac_ver()[0]}" if sys.platform == "darwin" else None


def _cpu() -> dict[str, Any]:
    return {
        "model": _cpu_model(),
        "architecture": platform.machine(),
        "logical_cores": os.cpu_count(),
        "affinity": cores.affinity(),
        "quota": cores.quota(),
        "usable_cores": cores.usable(),
        "torch_capability": torch.backends.cpu.get_cpu_capability(),
    }


def _cpu_model() -> str | None:
    for line in cores.lines("/proc/cpuinfo"):
        name, _, value = line.partition(":")
        if name.strip() in ("model name", "Hardware", "cpu model"):
            return value.strip()
    return platform.processor() or None


def _numpy_features() -> list[str] | None:
    core = getattr(np, "_core", None) or np.core
    features = getattr(core._multiarray_umath, "__cpu_features__", None)
    return sorted(name for name, enabled in features.items() if enabled) if features else None


def _blas() -> list[dict[str, Any]]:
    """The thread pools that are loaded in this process: BLAS and OpenMP libraries, and their threads."""
    import threadpoolctl

    wanted = ("user_api", "internal_api", "version", "threading_layer", "architecture", "num_threads")
    found = [{key: pool.get(key) for key in wanted} for pool in threadpoolctl.threadpool_info()]
    return sorted(found, key=lambda pool: str(sorted(pool.items(), key=str)))


def _switches() -> dict[str, Any]:
    return dict(sorted((switch.name, switch.read()) for switch in chosen_switches(True, cudnn=True)))


def _memory() -> dict[str, int | None]:
    sizes = {}
    for line in cores.lines("/proc/meminfo"):
        name, _, value = line.partition(":")
        sizes[name] = int(value.split()[0]) * 1024
    limits = [int(line) for line in cores.group_lines("memory.max") if line.strip().isdigit()]
    return {
        "total": sizes.get("MemTotal"),
        "available": sizes.get("MemAvailable"),
        "limit": limits[0] if limits else None,
    }


def _shared_memory() -> dict[str, int] | None:
    """``/dev/shm``; None where the system has none."""
    try:
        found = os.statvfs("/dev/shm")
    except (OSError, AttributeError):
        return None
    return {"total": found.f_frsize * found.f_blocks, "free": found.f_frsize * found.f_bavail}


def _open_files() -> dict[str, int | None] | None:
    try:
        import resource
    except ImportError:
        return None
    soft, hard = (
        None if limit == resource.RLIM_INFINITY else limit for limit in resource.getrlimit(resource.RLIMIT_NOFILE)
    )
    return {"soft": soft, "hard": hard}
