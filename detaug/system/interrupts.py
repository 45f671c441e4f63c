"""Exceptions that interrupt the making of a batch, and are no error of the loader or the transform.

They are Ctrl-C and, in the user's own process, whatever a signal handler of the program raises,
such as a time limit by SIGALRM. A handler that the loader sets while it makes a batch is the
loader's own, and so is a timer: a loader that limits its own time by the program's handler has
raised an error.
"""

from __future__ import annotations

import functools
import math
import signal
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

#: Signals for which programs have handlers that raise.
_NAMES = (
    "SIGALRM",
    "SIGVTALRM",
    "SIGPROF",
    "SIGUSR1",
    "SIGUSR2",
    "SIGTERM",
    "SIGHUP",
    "SIGINT",
    "SIGQUIT",
    "SIGXCPU",
)
_SIGNALS = [getattr(signal, name) for name in _NAMES if hasattr(signal, name)]
_ALWAYS = (KeyboardInterrupt, SystemExit, GeneratorExit)

#: The timer that ends with a signal.
_TIMERS = {"SIGALRM": "ITIMER_REAL", "SIGVTALRM": "ITIMER_VIRTUAL", "SIGPROF": "ITIMER_PROF"}
#: How much earlier (seconds) than was computed a timer may end.
_SLACK = 0.01

#: The code of each handler of the program: by signal, the earliest time (`time.monotonic`) at which
#: the program itself can cause the call. An earlier call comes from a timer of the loader's.
_codes: dict[CodeType, dict[int, float]] = {}


@contextmanager
def program_handlers_recorded() -> Iterator[None]:
    """Treat the signal handlers that are set now as the program's, inside the block.

    It is entered by one thread of the process at a time.
    """
    global _codes
    before = _codes
    _codes = _codes_of_handlers()
    try:
        yield
    finally:
        _codes = before


def is_interrupt(error: BaseException) -> bool:
    """Return whether an exception that has just been caught is no error of the pipeline's."""
    if isinstance(error, _ALWAYS):
        return True
    if not _codes:
        return False
    now = time.monotonic()
    return any(_came_from_a_handler(one, now) for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _came_from_a_handler(error: BaseException, now: float) -> bool:
    # The handler's frame is in the traceback of what it raised, below the interrupted line.
    for frame, _ in traceback.walk_tb(error.__traceback__):
        moments = _codes.get(frame.f_code)
        if moments is not None and moments.get(_signal_in(frame), -math.inf) <= now:
            return True
    return False


def _signal_in(frame: FrameType) -> Any:
    """Return the signal that a handler was called for, its first argument; None: unknown."""
    # The arguments come first in `f_locals`, whatever their names are: (signal, frame) or *args.
    for value in frame.f_locals.values():
        first = value[0] if isinstance(value, tuple) and value else value
        if isinstance(first, int) and first in _SIGNALS:
            return first
    return None


def _codes_of_handlers() -> dict[CodeType, dict[int, float]]:
    codes: dict[CodeType, dict[int, float]] = {}
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if not callable(handler) or handler is signal.default_int_handler:
            continue
        code = _code_of(handler)
        if code is not None:
            codes.setdefault(code, {})[number] = _first_moment(number)
    return codes


def _first_moment(number: signal.Signals) -> float:
    """Return when (`time.monotonic`) the program may get that signal first.

    Infinity: it has no such timer running.
    """
    if number.name not in _TIMERS:
        return -math.inf
    seconds_left, _ = signal.getitimer(getattr(signal, _TIMERS[number.name]))
    if seconds_left == 0:
        return math.inf
    if number.name != "SIGALRM":
        # The others count the time for which the process runs, which no clock here shows.
        return -math.inf
    return time.monotonic() + seconds_left - _SLACK


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = type(handler).__call__
    code = getattr(getattr(handler, "__func__", handler), "__code__", None)
    return code if isinstance(code, CodeType) else None
