"""Which graphics cards there are, and what talks to them, without starting CUDA in this process."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import torch

#: Seconds for a driver that has to wake its cards up.
_DRIVER_TIMEOUT = 20.0


def graphics_cards() -> dict[str, Any]:
    """Cards by name and memory in bytes, the driver, and the CUDA and cuDNN that torch was built with.

    A process that has asked CUDA anything can no longer fork workers that use it; so where this process does not use
    CUDA yet, the driver's own ``nvidia-smi`` is asked. It lists all cards, whatever ``CUDA_VISIBLE_DEVICES`` says.
    """
    started = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    listed = _from_driver()
    driver = listed[0][2] if listed else _driver_version()
    devices = [{"name": name, "memory": memory, "capability": None} for name, memory, _ in listed]
    if started:
        properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        devices = [
            {"name": each.name, "memory": each.total_memory, "capability": f"{each.major}.{each.minor}"}
            for each in properties
        ]
    return {
        "devices": devices,
        "driver": driver,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn_version(),
        "cuda_started": started,
        "mps": bool(torch.backends.mps.is_available()),
    }


def _from_driver() -> list[tuple[str, int | None, str]]:
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_DRIVER_TIMEOUT, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return parse_cards(done.stdout)


def parse_cards(text: str) -> list[tuple[str, int | None, str]]:
    """``"NVIDIA A100, 40960, 550.54"`` a line → (name, bytes, driver)."""
    cards = []
    for line in text.splitlines():
        parts = [part.strip() for part in line.rsplit(",", 2)]
        if len(parts) == 3:
            cards.append((parts[0], int(parts[1]) * 2**20 if parts[1].isdigit() else None, parts[2]))
    return cards


def _driver_version() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text()
    except OSError:
        return None
    found = re.search(r"Kernel Module.*?\s(\d+\.\d[\d.]*)", text)
    return found[1] if found else None


def _cudnn_version() -> int | None:
    try:
        version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        return version
    except RuntimeError:
        # older than the one that torch was built for: torch refuses to use it, and doctor only reports
        return None
