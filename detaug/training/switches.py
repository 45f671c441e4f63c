"""`deterministic_mode`: every switch that decides whether torch computes the same twice, set together and put back.

What each is for, by PyTorch's documentation ("Reproducibility" unless another page is named):

| switch | set to | why |
|---|---|---|
| `torch.backends.cudnn.benchmark` | False | it chooses a convolution algorithm by timing, anew in each run |
| `torch.backends.cudnn.deterministic` | True | of cuDNN's algorithms only those that repeat themselves |
| `torch.use_deterministic_algorithms` | True or "warn" | the same for torch's own operations; those without such an \
algorithm raise (or warn, and stay as they were) |
| `torch._inductor.config.deterministic` | True | torch.compile chooses nothing by timing (follows the one above) |
| `torch.backends.mkldnn.deterministic` | True | the same for oneDNN |
| `torch.cuda.tunable` | off | TunableOp chooses matrix multiplications by timing ("TunableOp") |
| `CUBLAS_WORKSPACE_CONFIG` | :4096:8 | cuBLAS gives the same result in several streams only with a fixed workspace |
| `torch.utils.deterministic.fill_uninitialized_memory` | False | filling every `torch.empty` costs time, and only \
matters to a program that reads memory it never wrote |
| TF32: `torch.backends.cuda.matmul.allow_tf32`, `torch.backends.cudnn.allow_tf32`, float32 matmul precision, \
`fp32_precision` of cuda and mkldnn | off | no cause of differences from run to run, but one from GPU to GPU \
("Numerical accuracy") |
| `torch.backends.cudnn.enabled` | only with ``cudnn=False`` | the last resort: PyTorch's own convolutions |
| `torch.set_num_threads`, `torch.set_num_interop_threads` | only with ``threads=`` | on a CPU, sums are split among threads |

Left alone, because they repeat themselves on one machine: reduced-precision reductions of float16 and bfloat16, the
choice of a linear algebra library. Memory-efficient attention repeats itself in its backward pass only with ``mode=True``,
not with ``"warn"`` (PyTorch documentation, `scaled_dot_product_attention`). NCCL has settings of its own (``NCCL_ALGO``).
`torch.nn.RNN`, `LSTM` and `GRU` on CUDA are cuDNN's: some of its releases differ in their backward pass
unless ``CUBLAS_WORKSPACE_CONFIG`` (set here) or ``CUDA_LAUNCH_BLOCKING=1`` is set before CUDA starts (PyTorch, `torch.nn.RNN`).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from detaug.training.float32_precision import UNREADABLE
from detaug.training.switch_list import CUBLAS_ALLOWED, CUBLAS_VARIABLE, NOT_SET, Mode, Switch, chosen_switches

logger = logging.getLogger("detaug")


class Change(NamedTuple):
    """One switch that was set to another value than it had."""

    before: Any
    after: Any


class Changes(Mapping[str, Change]):
    """What `deterministic_mode` changed: name of the switch → (before, after). Switches that already stood right are
    not in it. It prints as one line a switch."""

    def __init__(self, changes: Mapping[str, Change]) -> None:
        self._changes = dict(changes)

    def __getitem__(self, name: str) -> Change:
        return self._changes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._changes)

    def __len__(self) -> int:
        return len(self._changes)

    def __repr__(self) -> str:
        if not self._changes:
            return "nothing changed"
        return "\n".join(f"{name}: {change.before!r} -> {change.after!r}" for name, change in self._changes.items())


#: One for each `deterministic_mode` that is entered, innermost or latest last: name → (switch, what it is put back to).
_entered: list[dict[str, tuple[Switch, Any]]] = []
_lock = threading.RLock()


@contextmanager
def deterministic_mode(
    mode: Mode = True,
    *,
    tf32: bool | None = False,
    fill_memory: bool | None = False,
    cublas: bool = True,
    cudnn: bool | None = None,
    threads: int | None = None,
) -> Iterator[Changes]:
    """Inside, torch computes the same twice; afterwards every switch is as it was, also after an exception.

        with deterministic_mode() as changes:
            print(changes)
            train()

    It can be nested and used as a decorator. The switches belong to the process, not to a thread: where two threads'
    modes overlap, the later one counts, and the last to leave puts everything back. See the module's table for what is
    set and why.

    Args:
        mode: True: operations without a deterministic algorithm raise; "warn": they warn and run
            (`torch.use_deterministic_algorithms` with ``warn_only``); False: switched off, and only what chooses by timing
            (cuDNN's benchmark, TunableOp), TF32, cuBLAS's workspace and memory filling are left as they are.
        tf32: False (default): float32 is computed in float32; True: TF32 is allowed; None: left as it is.
        fill_memory: whether `torch.empty` and its like are filled with NaN or the largest integer; None: left as it is.
            False by default, where torch has True, because it costs time.
        cublas: whether ``CUBLAS_WORKSPACE_CONFIG`` is set where it is not. A value that is there is kept; one that
            cuBLAS does not promise anything for is kept with a warning. It is read once, when cuBLAS starts:
            where CUDA is already running and it was not set, a warning says so.
        cudnn: False switches cuDNN off altogether, the last resort where its deterministic algorithms are too few or
            still differ (slow); None: left as it is.
        threads: how many threads torch computes with on a CPU, within and between operations. Sums are split among
            them, so their number is a part of what a result depends on; Determined sets both to 1. Between operations it
            can be set once in a process, before its first parallel work, and is not put back. None: left as they are.

    Yields:
        `Changes`, a mapping of switch → (before, after).

    Raises:
        TypeError, ValueError: mode is none of False, True, "warn"; another argument is not a bool (or None), or `threads` is
            no positive integer.
    """
    chosen = chosen_switches(mode, tf32=tf32, fill_memory=fill_memory, cublas=cublas, cudnn=cudnn, threads=threads)
    with _lock:
        stored = {each.name: (each, each.own() if each.own else each.read()) for each in chosen}
        _entered.append(stored)
    try:
        with _lock:
            changes = _set(chosen)
        yield changes
    finally:
        with _lock:
            _leave(stored)


def _leave(stored: dict[str, tuple[Switch, Any]]) -> None:
    position = next(number for number, each in enumerate(_entered) if each is stored)
    del _entered[position]
    if position < len(_entered):
        # Another thread's mode began within this one and lasts: it is to put back what this one found.
        later = _entered[position]
        later.update({name: pair for name, pair in stored.items() if name in later})
        stored = {name: pair for name, pair in stored.items() if name not in later}
    _put_back(list(stored.values()))


@contextmanager
def preserved_switches() -> Iterator[None]:
    """Whatever is switched inside, every switch of the table is afterwards as it was."""
    chosen = chosen_switches(True, tf32=False, fill_memory=False, cublas=True, cudnn=True)
    stored = [(each, each.own() if each.own else each.read()) for each in chosen]
    try:
        yield
    finally:
        _put_back(stored)


def set_deterministic_mode(
    mode: Mode = True,
    *,
    tf32: bool | None = False,
    fill_memory: bool | None = False,
    cublas: bool = True,
    cudnn: bool | None = None,
    threads: int | None = None,
) -> Changes:
    """As `deterministic_mode`, for good. ``set_deterministic_mode(False)`` switches it off."""
    chosen = chosen_switches(mode, tf32=tf32, fill_memory=fill_memory, cublas=cublas, cudnn=cudnn, threads=threads)
    with _lock:
        return _set(chosen)


def _set(switches: list[Switch]) -> Changes:
    before = [switch.read() for switch in switches]
    for switch, was in zip(switches, before, strict=True):
        if switch.name == CUBLAS_VARIABLE:
            _warn_of_cublas(was)
            if was != NOT_SET:
                continue  # the user's own value is kept
        # Also as it was: a flag may have become unreadable, or half right, by the one before it.
        if not (switch.is_right(was) and switch.is_right(switch.read())):
            switch.write(switch.wanted)
    changes = {}
    for switch, was in zip(switches, before, strict=True):
        now = switch.read()
        if now != was:
            changes[switch.name] = Change(was, now)
    return Changes(changes)


def _put_back(stored: list[tuple[Switch, Any]]) -> None:
    for switch, value in stored:
        if value is None or value == UNREADABLE or switch.once:
            continue
        if (switch.own() if switch.own else switch.read()) != value:
            switch.write(value)


def _warn_of_cublas(value: str) -> None:
    if value == NOT_SET:
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            logger.warning(
                "CUDA is already running and %s was not set: cuBLAS may have started without it. Set it before the "
                "first use of a GPU, or call this earlier.",
                CUBLAS_VARIABLE,
            )
    elif value not in CUBLAS_ALLOWED:
        logger.warning(
            "%s=%r is kept, but only %s make cuBLAS repeat itself: set one of them, or unset it.",
            CUBLAS_VARIABLE,
            value,
            " and ".join(CUBLAS_ALLOWED),
        )
