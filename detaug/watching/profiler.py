"""Listening to a thread's calls beside a profiler of the program's own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

Listener = Callable[[FrameType, str, Any], object]


@contextmanager
def listening(listen: Listener, forward: bool = False) -> Iterator[None]:
    """Inside, `listen` is this thread's profile function. The program's own goes on afterwards.

    Args:
        listen: as for `sys.setprofile`.
        forward: the program's own, if it is written in Python, is called as well.
    """
    outer: Any = sys.getprofile()

    def both(frame: FrameType, event: str, argument: Any) -> None:
        listen(frame, event, argument)
        outer(frame, event, argument)

    # cProfile's is an object that cannot be called; it misses what happens inside.
    sys.setprofile(both if forward and callable(outer) else listen)
    try:
        yield
    finally:
        sys.setprofile(outer if callable(outer) else None)
        if outer is not None and not callable(outer):
            outer.enable()
