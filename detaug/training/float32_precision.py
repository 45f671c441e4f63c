"""TF32 and bfloat16 in float32 arithmetic: torch's three flags of old, and the per-backend settings since torch 2.9.

Both are kept in step, because torch refuses to read a flag (and, on a GPU, to multiply) where the two contradict each
other: "mix of the legacy and new APIs" (PyTorch documentation, CUDA semantics, "TensorFloat-32 on Ampere").
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

UNREADABLE = "unreadable"
OPERATIONS = (
    ("cuda", "matmul", "torch.backends.cuda.matmul.fp32_precision"),
    ("cuda", "conv", "torch.backends.cudnn.conv.fp32_precision"),
    ("cuda", "rnn", "torch.backends.cudnn.rnn.fp32_precision"),
    ("mkldnn", "matmul", "torch.backends.mkldnn.matmul.fp32_precision"),
    ("mkldnn", "conv", "torch.backends.mkldnn.conv.fp32_precision"),
    ("mkldnn", "rnn", "torch.backends.mkldnn.rnn.fp32_precision"),
)


def quietly(call: Callable[[], Any]) -> Any:
    """What `call` returns, without torch's notes that one of the two ways is going to be removed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def read_flag(call: Callable[[], Any]) -> Any:
    """A flag of old, or `UNREADABLE` where the user's settings contradict each other and torch refuses to say."""
    try:
        return quietly(call)
    except RuntimeError:
        return UNREADABLE


def has_settings_per_operation() -> bool:
    """Whether this torch has ``fp32_precision``."""
    return hasattr(torch._C, "_get_fp32_precision_getter")


def precision(backend: str, operation: str) -> str:
    """What is in force for one operation: its own setting, else its backend's, else the one for everything."""
    return str(torch._C._get_fp32_precision_getter(backend, operation))


def set_precision(backend: str, operation: str, value: str) -> None:
    torch._C._set_fp32_precision_setter(backend, operation, value)


def own_precision(backend: str, operation: str) -> str:
    """The operation's own setting, ``"none"`` where it follows its backend's.

    torch only tells what is in force, so the settings above it are lifted for the moment of the question.
    """
    above = precision("generic", "all")
    set_precision("generic", "all", "none")
    try:
        beside = precision(backend, "all")
        set_precision(backend, "all", "none")
        try:
            return precision(backend, operation)
        finally:
            set_precision(backend, "all", beside)
    finally:
        set_precision("generic", "all", above)
