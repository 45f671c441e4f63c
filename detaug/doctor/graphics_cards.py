"""Which graphics cards there are, and what talks to them, without starting CUDA in this process."""

from __future__ import annotations

import sys
from typing import Any

import torch
from torch.utils import collect_env


def graphics_cards() -> dict[str, Any]:
    """Cards by name (and memory in bytes, once CUDA runs), the driver, and the CUDA and cuDNN that torch was built with.

    A process that has asked CUDA anything can no longer fork workers that use it; so where this process does not use
    CUDA yet, the driver's own ``nvidia-smi`` is asked, by
    `torch.utils.collect_env`. It lists all cards, whatever ``CUDA_VISIBLE_DEVICES`` says.
    """
    started = bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
    if started:
        properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        devices = [
            {"name": each.name, "memory": each.total_memory, "capability": f"{each.major}.{each.minor}"}
            for each in properties
        ]
    else:
        devices = [{"name": name, "memory": None, "capability": None} for name in _names_from_driver()]
    return {
        "devices": devices,
        "driver": collect_env.get_nvidia_driver_version(collect_env.run),  # type: ignore[no-untyped-call]
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn_version(),
        "cuda_started": started,
        "mps": bool(torch.backends.mps.is_available()),
    }


def _names_from_driver() -> list[str]:
    if torch.version.hip is not None or sys.platform == "darwin":
        return []  # there collect_env would start the device
    return card_names(collect_env.get_gpu_info(collect_env.run) or "")  # type: ignore[no-untyped-call]


def card_names(text: str) -> list[str]:
    """``"GPU 0: NVIDIA A100-SXM4-40GB"`` a line → the names."""
    return [line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("GPU ")]


def _cudnn_version() -> int | None:
    try:
        version: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        return version
    except RuntimeError:
        # older than the one that torch was built for: torch refuses to use it, and doctor only reports
        return None
