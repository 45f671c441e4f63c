"""How far a command is, on stderr: a bar with the time left on a terminal, plain lines
elsewhere.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.table import Column


class Progress:
    """What is being done, and how much of it is; `progress` makes one that is shown.

    Args:
        total: how much there is; None: not known yet.
        told: is called with `what`, `done` and `total` (0: not known) whenever something else is
            being done.
        bar: shows it as a task.
    """

    def __init__(
        self,
        total: int | None = None,
        told: Callable[[str, int, int], None] | None = None,
        bar: Bar | None = None,
    ) -> None:
        self._told, self._bar = told, bar
        self.what, self.done, self.total = "", 0, total

    def update(
        self, what: str | None = None, done: int | None = None, total: int | None = None
    ) -> None:
        """Tell what is being done now, how much is done altogether, or how much there is; None: as
        before.
        """
        changed = what is not None and what != self.what
        self.what = self.what if what is None else what
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        if self._bar is not None:
            self._bar.update(
                self._bar.task_ids[0], description=self.what, completed=self.done, total=self.total
            )
        if changed and self._told is not None:
            self._told(self.what, self.done, self.total or 0)

    def advance(self, number: int = 1) -> None:
        """So much more is done."""
        self.update(done=self.done + number)


def say(text: str) -> None:
    """Print a line on stderr that stays, above a bar."""
    print(text, file=sys.stderr, flush=True)


#: The bar that is on the screen.
_bar: Bar | None = None


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Progress]:
    """Show how far some work is until the block ends: on a terminal a bar that vanishes at the end,
    elsewhere a line whenever something else is being done. In a block within another one the bar is
    the outer one's.

    Args:
        title: begins every plain line; a command's name.
        total: how much there is to do; None: not known yet.
    """
    global _bar
    console, began = Console(stderr=True), time.monotonic()

    def line(what: str, done: int, total: int) -> None:
        so_far = f"{done}/{total}, " if total else ""
        say(f"{title}: {so_far}{time.monotonic() - began:.0f} s: {what}")

    if _bar is not None:
        yield Progress(total)
        return
    if not console.is_terminal:
        yield Progress(total, line)
        return
    whole = Column(ratio=1, no_wrap=True)  # numbers stay whole
    words = TextColumn("{task.description}", markup=False, table_column=whole)
    columns = (
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        words,
    )
    try:
        with Bar(*columns, console=console, transient=True, expand=True) as _bar:
            _bar.add_task("", total=total)
            yield Progress(total, bar=_bar)
    finally:
        _bar = None
