"""How far a command is, on stderr: a bar with the time left on a terminal, plain lines elsewhere."""

from __future__ import annotations

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
        told: is called with `what`, `done` and `total` (0: not known) whenever something else is being done.
        console: where lines are printed; None: nowhere.
        bar: shows it as a task.
    """

    def __init__(
        self,
        total: int | None = None,
        told: Callable[[str, int, int], None] | None = None,
        console: Console | None = None,
        bar: Bar | None = None,
    ) -> None:
        self._told, self._console, self._bar = told, console, bar
        self.what, self.done, self.total = "", 0, total

    def update(self, what: str | None = None, done: int | None = None, total: int | None = None) -> None:
        """Tell what is being done now, how much is done altogether, or how much there is; None: as before."""
        changed = what is not None and what != self.what
        self.what = self.what if what is None else what
        self.done = self.done if done is None else done
        self.total = self.total if total is None else total
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], description=self.what, completed=self.done, total=self.total)
        if changed and self._told is not None:
            self._told(self.what, self.done, self.total or 0)

    def advance(self, number: int = 1) -> None:
        """So much more is done."""
        self.update(done=self.done + number)

    def say(self, text: str) -> None:
        """Print a line that stays, above a bar."""
        if self._console is not None:
            self._console.print(text, markup=False, highlight=False, soft_wrap=not self._console.is_terminal)


#: The bar that is on the screen.
_bar: Bar | None = None


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Progress]:
    """Show how far some work is until the block ends: on a terminal a bar that vanishes at the end, elsewhere a line whenever
    something else is being done. In a block within another one the bar is the outer one's.

    Args:
        title: begins every plain line; a command's name.
        total: how much there is to do; None: not known yet.
    """
    global _bar
    console = Console(stderr=True)
    if _bar is not None:
        yield Progress(total, console=_bar.console)
        return
    if not console.is_terminal:
        began = time.monotonic()

        def line(what: str, done: int, total: int) -> None:
            shown.say(f"{title}: {f'{done}/{total}, ' if total else ''}{time.monotonic() - began:.0f} s: {what}")

        shown = Progress(total, line, console)
        yield shown
        return
    words = TextColumn(
        "{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True)
    )  # numbers stay whole
    columns = (BarColumn(bar_width=12), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left"), words)
    try:
        with Bar(*columns, console=console, transient=True, expand=True) as _bar:
            _bar.add_task("", total=total)
            yield Progress(total, console=console, bar=_bar)
    finally:
        _bar = None
