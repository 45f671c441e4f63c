"""Exceptions that interrupt the making of a batch, and are no error of the loader or the transform.

Those are Ctrl-C, and in the user's own process whatever a signal handler of the program raises,
such as a time limit by SIGALRM. A handler that the loader has set while it makes a batch is its
own.

That is Ctrl-C, and in the user's own process whatever a signal handler of the program raises, such
as a time limit by SIGALRM. A handler that the loader has set while it makes a batch is its own.
"""

from __future__ import annotations

import functools
import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType
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

_codes: frozenset[CodeType] = frozenset()


@contextmanager
def programs_handlers_noted() -> Iterator[None]:
    """Take signal handlers that are set now for the program's, inside the block.

    It is entered by one thread of the process at a time.
    """
    global _codes
    before = _codes
    _codes = frozenset(_codes_of_handlers())
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
    return any(_came_from_a_handler(one) for one in _chain(error))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an exception and those that it was raised from."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _came_from_a_handler(error: BaseException) -> bool:
    return any(frame.f_code in _codes for frame, _ in traceback.walk_tb(error.__traceback__))


def _codes_of_handlers() -> Iterator[CodeType]:
    for number in _SIGNALS:
        handler = signal.getsignal(number)
        if callable(handler) and handler is not signal.default_int_handler:
            code = _code_of(handler)
            if code is not None:
                yield code


def _code_of(handler: Any) -> CodeType | None:
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = type(handler).__call__
    code = getattr(getattr(handler, "__func__", handler), "__code__", None)
    return code if isinstance(code, CodeType) else None
