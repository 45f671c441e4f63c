"""Transforms that look at settings of the process. Importable by workers of every start method."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from detaug.system.process_settings import ProcessSettings


class Counter:
    """An endless loader that keeps nothing."""

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.arange(6, dtype=np.float32)}


def default_dtype() -> Any:
    return torch.zeros(2).dtype.itemsize


def default_device() -> Any:
    return str(torch.empty(2).device)


def settings() -> Any:
    """What this process has set: by detaug's names, and what no setting tells."""
    tiny, a = np.full(4, np.finfo(np.float32).tiny, dtype=np.float32), torch.ones(3, 3)
    names = ("OMP_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "MKL_NUM_THREADS")
    return {
        **ProcessSettings.here().values,
        "denormals of torch and NumPy": np.concatenate(
            [tiny / 2, (torch.from_numpy(tiny) / 4).numpy()]
        ).tobytes(),
        "autocast": str((a @ a).dtype),
        "threads": (torch.get_num_threads(), [os.environ.get(name) for name in names]),
    }


def threads_of_torch_then_changed() -> Any:
    seen = torch.get_num_threads()
    torch.set_num_threads(2)
    return seen


def threads_of_numexpr() -> Any:
    import numexpr

    return numexpr.get_num_threads()


def threads_of_numexpr_then_changed() -> Any:
    import numexpr

    seen = numexpr.get_num_threads()
    numexpr.set_num_threads(2)
    return seen


def threads_there_are() -> Any:
    return len(os.listdir("/proc/self/task"))


def order_of_a_set() -> Any:
    return list({"liver", "spleen", "kidney", "aorta", "pancreas", "stomach"})


class Shows:
    """Adds what one function sees to each batch."""

    def __init__(self, what: Callable[[], Any]) -> None:
        self.what = what

    def __call__(self, **batch: Any) -> dict[str, Any]:
        return {**batch, "seen": self.what()}
