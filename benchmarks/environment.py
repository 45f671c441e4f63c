"""What a benchmark ran on: versions, processor, memory. No host name, no paths."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    "numpy",
    "numba",
    "torch",
    "batchgenerators",
    "batchgeneratorsv2",
    "nnunetv2",
    "monai",
    "torchio",
    "grain",
    "blosc2",
    "nilearn",
)


def environment_record() -> dict[str, Any]:
    """The versions and the hardware that a result belongs to."""
    from detaug.versions import __version__ as detaug_version  # the checkout may not be installed

    return {
        "python": platform.python_version(),
        "packages": {"detaug": detaug_version, **{name: _version(name) for name in PACKAGES}},
        "system": platform.system(),
        "kernel": platform.release().split("-")[0],
        "architecture": platform.machine(),
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()
