"""Sets the switches and puts them back, also where blocks nest or two threads' blocks overlap."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple

import torch

from detaug.training.switches.table import CUBLAS_ALLOWED, CUBLAS_VARIABLE, NOT_SET, Mode, Switch, chosen_switches

logger = logging.getLogger("detaug")


class Change(NamedTuple):
    """One switch's value before and after."""

    before: Any
    after: Any


class Changes(dict[str, Change]):
    """What `deterministic_mode` changed: name of the switch → (before, after). It prints as one line a switch."""

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
    tf32: Literal[False] | None = False,
    fill_memory: bool | None = False,
    cudnn: bool | None = None,
    threads: int | None = None,
) -> Iterator[Changes]:
    """Make torch's results reproducible inside the block; put every switch back at its end, also after an exception.

        with deterministic_mode() as changes:
            print(changes)
            train()

    It can be nested and used as a decorator. The switches belong to the process, not to a thread: where two threads'
    blocks overlap, the later one counts, and the last to leave puts everything back. The package's docstring has the table
    of switches and reasons. None leaves a switch as it is. A user's ``CUBLAS_WORKSPACE_CONFIG`` is kept, with a warning where
    cuBLAS is not reproducible with it. cuBLAS reads it once, when it starts: where CUDA is already running, a warning says so.

    Args:
        mode: True: operations without a deterministic algorithm raise; "warn": they warn and run
            (`torch.use_deterministic_algorithms` with ``warn_only``); False: deterministic algorithms off; choices by timing
            (cuDNN's benchmark, TunableOp), TF32, cuBLAS's workspace and memory filling stay as they are.
        tf32: False: float32 is computed in float32; None: as the settings are.
        fill_memory: whether `torch.empty` and its like are filled with NaN or the largest integer. False by default, where
            torch has True, because it costs time.
        cudnn: False switches cuDNN off, the (slow) last resort where its deterministic algorithms are too few or differ.
        threads: the number of torch's threads on a CPU, within and between operations. Sums are split among them, so
            results depend on it; Determined sets both to 1. Between operations it can be set once in a process, before the
            first parallel work, and is not put back.

    Yields:
        `Changes`, a mapping of switch → (before, after).

    Raises:
        TypeError, ValueError: mode is none of False, True, "warn"; `threads` is no positive integer; another argument is
            not a bool (or None).
    """
    chosen = chosen_switches(mode, tf32=tf32, fill_memory=fill_memory, cudnn=cudnn, threads=threads)
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
    tf32: Literal[False] | None = False,
    fill_memory: bool | None = False,
    cudnn: bool | None = None,
    threads: int | None = None,
) -> Changes:
    """As `deterministic_mode`, for good. ``set_deterministic_mode(False)`` switches it off."""
    chosen = chosen_switches(mode, tf32=tf32, fill_memory=fill_memory, cudnn=cudnn, threads=threads)
    with _lock:
        return _set(chosen)


@contextmanager
def preserved_switches() -> Iterator[None]:
    """Puts every switch of the table back at the block's end."""
    stored = _stored(chosen_switches(True, cudnn=True, threads=1))
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
    ends: _Stored = {}
    for name, pair in stored.items():
        # Another thread's block began within this one and lasts: it must put back what this one found.
        later = next((each for each in _entered[position:] if name in each), ends)
        later[name] = pair
    _put_back(ends)


def _set(switches: list[Switch]) -> Changes:
    before = [switch.read() for switch in switches]
    for switch, was in zip(switches, before, strict=True):
        if switch.name == CUBLAS_VARIABLE:
            _warn_of_cublas(was)
            if was != NOT_SET:
                continue  # the user's value is kept
        # Read again: a flag may have become unreadable, or half right, by the one before it.
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
