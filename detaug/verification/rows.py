"""Rows: runs of a command, one after another, with a verdict for each, and the result of all.

Records that detaug logs meanwhile, and its warnings, are kept in the row, so that they do not tear
up a progress bar.

`detaug verify`, `detaug nnunet verify` and the two demos add their own columns, and nothing else.
"""

from __future__ import annotations

import io
import logging
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Generic, Literal, TypeVar

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from detaug.system.progress import Progress

#: Verdicts of rows, most of which are compared with the reference.
EQUAL = "equal"
DIFFERENT = "different"
NOT_RUN = "not run"
FAILED = "failed"
REFERENCE = "reference"

_STYLES = {EQUAL: "green", REFERENCE: "default", DIFFERENT: "bold red", FAILED: "bold red"}


@dataclass(frozen=True)
class Row:
    """One run.

    Attributes:
        what: its circumstances.
        verdict: one of those above.
        seconds: that it took.
        notices: records that detaug logged meanwhile, from WARNING on, and its warnings.
    """

    what: str
    verdict: str = REFERENCE
    seconds: float = 0.0
    notices: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """False if it is a failure of what is verified."""
        return self.verdict not in (DIFFERENT, FAILED)

    def verdict_text(self) -> Text:
        """Return the verdict in its colour."""
        return Text(self.verdict, _STYLES.get(self.verdict, "yellow"))

    def as_json(self) -> dict[str, Any]:
        """Return the row as a JSON-able dict."""
        return {**asdict(self), "ok": self.ok, "seconds": round(self.seconds, 2)}


R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class PendingRow(Generic[R]):
    """A row that is still to be run.

    Attributes:
        what: its circumstances.
        run: makes the row.
        size: its share of the command's work.
    """

    what: str
    run: Callable[[], R]
    size: int = 1


@contextmanager
def collected_notices() -> Iterator[list[str]]:
    """Collect detaug's log records from WARNING on, each text once, inside the block.

    Its warnings follow at the block's end. Other libraries' warnings are not shown.
    """
    notices: list[str] = []
    logger = logging.getLogger("detaug")
    collector = _Collector(notices)
    propagate = logger.propagate
    logger.addHandler(collector)
    # Otherwise the root logger's handlers would write across the progress bar.
    logger.propagate = False
    try:
        with warnings.catch_warnings(record=True) as own_warnings:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", module=r"detaug\.")
            yield notices
        # Each text once, because every batch of a row may warn of the same thing.
        texts = [str(warning.message) for warning in own_warnings]
        notices[:] = dict.fromkeys([*notices, *texts])
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagate


class _Collector(logging.Handler):
    """A log handler that appends messages from WARNING on to a list."""

    def __init__(self, messages: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._messages = messages

    def emit(self, record: logging.LogRecord) -> None:
        """Append the record's message."""
        self._messages.append(record.getMessage())


def run_rows(planned: Iterable[PendingRow[R]], bar: Progress) -> Iterator[R]:
    """Run one row after another, each when the caller takes it.

    Args:
        planned: the rows; their sizes are added to the work of `bar`.
        bar: shows them.
    """
    # All rows are listed before the first is run, so that the bar knows the total.
    pending_rows = list(planned)
    done = bar.done
    bar.total = done + sum(pending.size for pending in pending_rows)
    for pending in pending_rows:
        bar.update(pending.what, done)
        began = time.perf_counter()
        with collected_notices() as notices:
            row = pending.run()
        done += pending.size
        bar.done = done
        yield replace(row, seconds=time.perf_counter() - began, notices=tuple(notices))


class Report(Generic[R]):
    """The result of a command: rows in the order in which they were run."""

    rows: tuple[R, ...]

    @property
    def ok(self) -> bool:
        """True if no row is a failure."""
        return all(row.ok for row in self.rows)

    @property
    def status(self) -> int:
        """The command's exit status.

        It is 1 where something differs, else 2 where something could not be measured.
        """
        verdicts = {row.verdict for row in self.rows}
        if self.ok:
            return 0
        # A difference counts for more than a row that could not be measured.
        if FAILED in verdicts and DIFFERENT not in verdicts:
            return 2
        return 1

    def render(self) -> Sequence[RenderableType]:
        """Return the parts that people read: a table, and lines below it."""
        raise NotImplementedError

    def __rich__(self) -> Group:
        return Group(*self.render())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """Return the text for the last line of a notebook's cell.

        IPython finds `_repr_pretty_` only after a dataclass's own `__repr__`.
        """
        return {"text/plain": str(self)}

    def __str__(self) -> str:
        """Return the text without colours; its table is at most 120 columns wide."""
        file = io.StringIO()
        # A notebook's kernel sets FORCE_COLOR, and rich would also draw outside the file.
        console = Console(
            file=file,
            width=120,
            highlight=False,
            no_color=True,
            force_terminal=False,
            force_jupyter=False,
        )
        for part in self.render():
            console.print(part, soft_wrap=isinstance(part, Text))
        return file.getvalue().rstrip("\n")


#: A table's column: its title, the function that returns a row's cell, and True for numbers.
Column = tuple[str, Callable[[R], str], bool]


def table(title: str, rows: Sequence[R], *columns: Column[R]) -> Table:
    """Return a table with a line for every row.

    A line has the row's circumstances (under `title`), the columns, the verdict and the seconds.
    """
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    words = " ".join(row.what for row in rows).split()
    # On a narrow terminal lines break between words only.
    result.add_column(title, overflow="fold", min_width=max(map(len, words), default=0))
    for name, _, is_number in columns:
        alignment: Literal["left", "right"] = "right" if is_number else "left"
        result.add_column(name, justify=alignment, no_wrap=True)
    result.add_column("verdict")
    result.add_column("seconds", justify="right", no_wrap=True)
    for row in rows:
        cells = [cell(row) for _, cell, _ in columns]
        result.add_row(row.what, *cells, row.verdict_text(), f"{row.seconds:.1f}")
    return result
