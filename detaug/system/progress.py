"""Progress of a command, on stderr: a bar on a terminal, plain lines elsewhere."""

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
    """The action of a command, and the amount of its work; `progress` makes one that is shown.

    Args:
        total: the amount of work; None: not known yet.
        on_action: called with `action`, `done` and `total` (0: not known) whenever the action
            changes.
        bar: shows it as a task.

    Attributes:
        action: the current action.
        done: the amount of work that is done.
    """

    def __init__(
        self,
        total: int | None = None,
        on_action: Callable[[str, int, int], None] | None = None,
        bar: Bar | None = None,
    ) -> None:
        self._on_action = on_action
        self._bar = bar
        self.action = ""
        self.done = 0
        self.total = total

    def update(
        self, action: str | None = None, done: int | None = None, total: int | None = None
    ) -> None:
        """Set the current action, the amount of work done, or that of all work; None: as before."""
        is_other = action is not None and action != self.action
        if action is not None:
            self.action = action
        if done is not None:
            self.done = done
        if total is not None:
            self.total = total
        if self._bar is not None:
            (task,) = self._bar.task_ids
            self._bar.update(task, description=self.action, completed=self.done, total=self.total)
        if is_other and self._on_action is not None:
            self._on_action(self.action, self.done, self.total or 0)

    def advance(self, number: int = 1) -> None:
        """Add to the amount of work that is done."""
        self.update(done=self.done + number)


def say(text: str) -> None:
    """Print a line on stderr that stays, above a bar."""
    print(text, file=sys.stderr, flush=True)


#: The bar that is on the screen.
_bar: Bar | None = None


@contextmanager
def progress(title: str, total: int | None = None) -> Iterator[Progress]:
    """Show progress until the block ends.

    On a terminal that is a bar, which vanishes at the end; elsewhere it is a line for every action.
    A block within another one shows nothing: the bar is the outer one's.

    Args:
        title: begins every plain line; a command's name.
        total: the amount of work; None: not known yet.
    """
    # A module's variable: a command within another one, called in any way, has to find the bar.
    global _bar
    console = Console(stderr=True)
    start = time.monotonic()

    def say_action(action: str, done: int, total: int) -> None:
        so_far = f"{done}/{total}, " if total else ""
        say(f"{title}: {so_far}{time.monotonic() - start:.0f} s: {action}")

    if _bar is not None:
        yield Progress(total)
        return
    if not console.is_terminal:
        yield Progress(total, say_action)
        return
    # This column alone becomes shorter on a narrow terminal: numbers stay whole.
    flexible = Column(ratio=1, no_wrap=True)
    columns = (
        BarColumn(bar_width=12),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("left"),
        TextColumn("{task.description}", markup=False, table_column=flexible),
    )
    try:
        with Bar(*columns, console=console, transient=True, expand=True) as _bar:
            _bar.add_task("", total=total)
            yield Progress(total, bar=_bar)
    finally:
        _bar = None
