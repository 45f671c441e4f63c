"""Setting the switches and putting them back, also where blocks nest or two threads' blocks overlap."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from detaug.training.switches import table
from detaug.training.switches.table import CUBLAS_ALLOWED, CUBLAS_VARIABLE, NOT_SET, Mode, Switch

logger = logging.getLogger("detaug")


class Change(NamedTuple):
    """One switch that was set to another value than it had."""

    before: Any
    after: Any


class Changes(dict[str, Change]):
    """What `deterministic_mode` changed: name of the switch → (before, after). Switches that already stood right are
    not in it. It prints as one line a switch."""

    def __repr__(self) -> str:
        lines = [f"{name}: {change.before!r} -> {change.after!r}" for name, change in self.items()]
        return "\n".join(lines) or "nothing changed"


_Stored = dict[str, tuple[Switch, Any]]

#: One for each `deterministic_mode` that is entered, innermost or latest last: name → (switch, what it is put back to).
_entered: list[_Stored] = []
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
    modes overlap, the later one counts, and the last to leave puts everything back. See the package's table for what is
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
    chosen = table.chosen_switches(
        mode, tf32=tf32, fill_memory=fill_memory, cublas=cublas, cudnn=cudnn, threads=threads
    )
    with _lock:
        stored = _stored(chosen)
        _entered.append(stored)
    try:
        with _lock:
            changes = _set(chosen)
        yield changes
    finally:
        with _lock:
            _leave(stored)


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
    with _lock:
        return _set(
            table.chosen_switches(mode, tf32=tf32, fill_memory=fill_memory, cublas=cublas, cudnn=cudnn, threads=threads)
        )


@contextmanager
def preserved_switches() -> Iterator[None]:
    """Whatever is switched inside, every switch of the table is afterwards as it was."""
    stored = _stored(table.chosen_switches(True, cudnn=True, threads=1))
    try:
        yield
    finally:
        _put_back(stored)


def _stored(chosen: list[Switch]) -> _Stored:
    return {switch.name: (switch, switch.to_put_back()) for switch in chosen}


def _put_back(stored: _Stored) -> None:
    for switch, value in stored.values():
        switch.put_back(value)


def _leave(stored: _Stored) -> None:
    position = next(number for number, each in enumerate(_entered) if each is stored)
    del _entered[position]
    if position < len(_entered):
        # Another thread's mode began within this one and lasts: it is to put back what this one found.
        later = _entered[position]
        later.update({name: pair for name, pair in stored.items() if name in later})
        stored = {name: pair for name, pair in stored.items() if name not in later}
    _put_back(stored)


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
    pairs = {switch.name: Change(was, switch.read()) for switch, was in zip(switches, before, strict=True)}
    return Changes({name: change for name, change in pairs.items() if change.before != change.after})


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
            "%s=%r is kept, but cuBLAS is reproducible only with %s: set one of them, or unset it.",
            CUBLAS_VARIABLE,
            value,
            " or ".join(CUBLAS_ALLOWED),
        )
