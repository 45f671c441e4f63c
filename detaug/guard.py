"""The cheap watch at run time: generators that are created without a seed while a batch is made.

NumPy draws the seed of every unseeded Generator, bit generator, SeedSequence and RandomState from one function; that is
where they are noticed, at no cost to anything else.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy.random.bit_generator as numpy_seeding


class Guard:
    """Reports each line that creates an unseeded NumPy generator once.

    Args:
        report: is told ``file:line`` in a sentence.
    """

    def __init__(self, report: Callable[[str], None]) -> None:
        self._report = report
        self._reported: set[str] = set()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, in this thread, unseeded generators are reported."""
        original = numpy_seeding.randbits  # type: ignore[attr-defined]
        thread = threading.get_ident()

        def noticed(bits: int) -> int:
            if threading.get_ident() == thread:
                self._notice(_caller())
            return int(original(bits))

        numpy_seeding.randbits = noticed  # type: ignore[attr-defined]
        try:
            yield
        finally:
            numpy_seeding.randbits = original  # type: ignore[attr-defined]

    def _notice(self, line: str) -> None:
        if line not in self._reported:
            self._reported.add(line)
            self._report(
                f"{line} creates a random generator without a seed while a batch is made: its draws differ from run to "
                "run. Use detaug.current().generator, or a generator seeded from it."
            )


def _caller() -> str:
    """``file:line`` of the innermost frame that is neither NumPy's nor ours."""
    frame = sys._getframe(2)
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(("numpy.", "detaug.")):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        if frame.f_back is None:
            break
        frame = frame.f_back
    return "a line that could not be found"
