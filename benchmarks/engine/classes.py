"""What sending 16 MB costs, by the class that holds them: ``python -m benchmarks.engine.classes``."""

from __future__ import annotations

import contextlib
import importlib
import time
from statistics import median
from typing import Any

import numpy as np
import torch

from detaug.transport.transfer import pack, unpack

_ROUNDS = 60
_NUMBERS = 4_000_000


class Subclass(torch.Tensor):
    """What a library's own tensor is to torch."""


def batches() -> dict[str, Any]:
    """16 MB of float32 in each class; MONAI's where it is installed."""
    tensor = torch.zeros(_NUMBERS)
    found = {
        "tensor": tensor,
        "tensor subclass": tensor.as_subclass(Subclass),
        "nn.Parameter": torch.nn.Parameter(tensor),
        "array": tensor.numpy(),
        "matrix": tensor.numpy().reshape(2000, -1).view(np.matrix),
        "masked array": np.ma.masked_array(tensor.numpy()),
    }
    with contextlib.suppress(ImportError):
        found["MetaTensor"] = importlib.import_module("monai.data").MetaTensor(tensor)
    return found


def milliseconds(batch: Any) -> float:
    """Median time to pack, copy the buffers once as a slot does, and unpack."""
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        packed = pack(batch)
        unpack(packed.pickled, [buffer.copy() for buffer in packed.buffers])
        seconds.append(time.perf_counter() - start)
    return 1000 * median(seconds)


if __name__ == "__main__":
    for name, batch in batches().items():
        print(f"{name:16} {milliseconds(batch):6.2f} ms")
