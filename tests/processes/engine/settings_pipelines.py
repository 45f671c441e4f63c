"""Transforms whose bytes depend on one setting of the process each. Importable by workers of every start method."""

from __future__ import annotations

import decimal
import locale
import os
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch


class Counter:
    """An endless loader that keeps nothing."""

    def __iter__(self) -> Counter:
        return self

    def __next__(self) -> dict[str, Any]:
        return {"data": np.arange(6, dtype=np.float32)}


def denormals() -> Any:
    tiny = np.full(4, np.finfo(np.float32).tiny, dtype=np.float32)
    return np.concatenate([tiny / 2, (torch.from_numpy(tiny) / 4).numpy()]).tobytes()


def default_dtype() -> Any:
    return torch.zeros(2).dtype.itemsize


def default_device() -> Any:
    return str(torch.empty(2).device)


def deterministic_algorithms() -> Any:
    return torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()


def matmul_precision() -> Any:
    return torch.get_float32_matmul_precision()


def onednn() -> Any:
    return torch.backends.mkldnn.enabled


def einsum() -> Any:
    return str(torch.backends.opt_einsum.strategy)


def gradients() -> Any:
    return (torch.zeros(1, requires_grad=True) * 2).requires_grad


def autocast() -> Any:
    a = torch.ones(3, 3)
    return str((a @ a).dtype)


def numpy_errors() -> Any:
    try:
        return float(np.float64(1.0) / np.float64(0.0))
    except FloatingPointError:
        return "raised"


def numpy_buffer() -> Any:
    return np.getbufsize()


def decimals() -> Any:
    return str(decimal.Decimal(1) / decimal.Decimal(3))


def order_of_strings() -> Any:
    return sorted(["a", "B", "c", "D"], key=locale.strxfrm), locale.localeconv()["decimal_point"]


def recursion() -> Any:
    return sys.getrecursionlimit()


def threads() -> Any:
    names = ("OMP_NUM_THREADS", "ITK_GLOBAL_DEFAULT_NUMBER_OF_THREADS", "MKL_NUM_THREADS")
    return torch.get_num_threads(), [os.environ.get(name) for name in names]


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


class LoadsLater:
    """Imports a library with threads of its own in the batch, and says how many it has."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, **batch: Any) -> dict[str, Any]:
        if self.name == "SimpleITK":
            import SimpleITK

            return {**batch, "seen": SimpleITK.ProcessObject.GetGlobalDefaultNumberOfThreads()}
        import numexpr

        return {**batch, "seen": numexpr.get_num_threads()}


class ChangesThreads:
    """Changes the number of threads in one batch: the next one has one again."""

    def __call__(self, **batch: Any) -> dict[str, Any]:
        seen = torch.get_num_threads()
        torch.set_num_threads(2)
        return {**batch, "seen": seen}


def own_variable() -> Any:
    return os.environ.get("ITS_OWN")
