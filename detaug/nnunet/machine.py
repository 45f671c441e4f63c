"""Properties of a machine that decide a training's bytes, for its record."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import torch

from detaug.training import environment
from detaug.training.switches import precision_settings

#: Variables by which libraries compute with other instructions than the processor's best.
_VARIABLES = (
    "DNNL_MAX_CPU_ISA",
    "MKL_CBWR",
    "MKL_ENABLE_INSTRUCTIONS",
    "NVIDIA_TF32_OVERRIDE",
    "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_CORETYPE",
)


def machine_of(
    device: torch.device, network: torch.nn.Module, *, batches_vary: bool
) -> dict[str, Any]:
    """Return the properties of this machine that decide the bytes of a training.

    Args:
        device: the network's.
        network: compiled or not.
        batches_vary: whether the processor decides the bytes of batches, as it does where torch
            makes them. detaug's own are the same on every x86-64 CPU.

    Returns:
        What JSON can hold: "gpu" and "cudnn" where a GPU computes; "cpu" with its model and the
        instructions that torch and NumPy use, where it decides; "variables" that choose
        instructions; "compiled"; "precision", the settings of TF32 and matrix multiplication.
    """
    machine: dict[str, Any] = {}
    if device.type == "cuda":
        machine["gpu"] = torch.cuda.get_device_name(device)
        machine["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    if device.type != "cuda" or batches_vary:
        machine["cpu"] = dict(_processor())
    variables = {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    if variables:
        machine["variables"] = variables
    # Compiled and not compiled, layers are computed in another order.
    machine["compiled"] = any("_orig_mod" in module._modules for module in network.modules())
    machine["precision"] = precision_settings()
    return machine


@cache
def _processor() -> dict[str, Any]:
    """Return the processor's model and what torch and NumPy use of it; they choose once."""
    record = environment()
    return {
        "model": record["cpu"]["model"],
        "torch": record["cpu"]["torch_capability"],
        "numpy": record["numpy"]["cpu_features"],
    }
