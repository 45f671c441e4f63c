"""What a benchmark ran on: versions, processor, memory. No host name, no paths."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
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
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _commit(),
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


def _commit() -> str | None:
    """Of the checkout; None where there is none, or no git."""
    try:
        asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _cpu_model() -> str:
    """Its name, family and model: many kinds have one name."""
    cpuinfo = Path("/proc/cpuinfo")
    if not cpuinfo.exists():
        return platform.processor()
    pairs = [line.partition(":") for line in cpuinfo.read_text(encoding="utf-8").splitlines()]
    found = {key.strip(): value.strip() for key, _, value in reversed(pairs)}
    if "model name" not in found:
        return platform.processor()
    return f"{found['model name']}, family {found.get('cpu family')}, model {found.get('model')}"
