"""Rows: what a command runs one after another, a verdict for each, and the result that they make.
What detaug logs and warns of meanwhile is kept for it, so that it does not tear up a progress bar.

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
from typing import Any, Generic, TypeVar

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from detaug.reports.progress import Progress

#: What a row may say of its comparison with the reference.
EQUAL, DIFFERENT = "equal", "different"
NOT_RUN, FAILED, REFERENCE = "not run", "failed", "reference"

_STYLES = {EQUAL: "green", REFERENCE: "default", DIFFERENT: "bold red", FAILED: "bold red"}


@dataclass(frozen=True)
class Row:
    """What was run once: the circumstances, one of the verdicts above, and what detaug logged and
    warned of meanwhile.
    """

    what: str
    verdict: str = REFERENCE
    seconds: float = 0.0
    notices: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether it is no failure of what is verified."""
        return self.verdict not in (DIFFERENT, FAILED)

    def told(self) -> Text:
        """The verdict in its colour."""
        return Text(self.verdict, _STYLES.get(self.verdict, "yellow"))

    def as_json(self) -> dict[str, Any]:
        """All of it as what JSON can hold."""
        return {**asdict(self), "ok": self.ok, "seconds": round(self.seconds, 2)}


R = TypeVar("R", bound=Row)


@dataclass(frozen=True)
class Planned(Generic[R]):
    """A row that is still to be run; `size` is how much of the command's work it is."""

    what: str
    run: Callable[[], R]
    size: int = 1


@contextmanager
def collected_notices() -> Iterator[list[str]]:
    """Inside, log records of detaug from WARNING on go into the list, each text once; its warnings
    follow at the end. Other libraries' warnings are not shown.
    """
    notices: list[str] = []
    logger = logging.getLogger("detaug")
    collector, propagate = logging.Handler(logging.WARNING), logger.propagate
    collector.emit = lambda record: notices.append(record.getMessage())  # type: ignore[method-assign]
    logger.addHandler(collector)
    logger.propagate = False
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", module=r"detaug\.")
            yield notices
        notices[:] = dict.fromkeys([*notices, *(str(each.message) for each in caught)])
    finally:
        logger.removeHandler(collector)
        logger.propagate = propagate


def run_rows(planned: Iterable[Planned[R]], shown: Progress) -> Iterator[R]:
    """Run one after another, each when it is asked for; the sizes are added to the work that
    `shown` has.
    """
    planned = list(planned)
    done = shown.done
    shown.total = done + sum(each.size for each in planned)
    for each in planned:
        shown.update(each.what, done)
        began = time.perf_counter()
        with collected_notices() as notices:
            row = each.run()
        done += each.size
        shown.done = done
        yield replace(row, seconds=time.perf_counter() - began, notices=tuple(notices))


class Report(Generic[R]):
    """What a command found: rows in the order in which they were run."""

    rows: tuple[R, ...]

    @property
    def ok(self) -> bool:
        """Whether all rows are."""
        return all(row.ok for row in self.rows)

    @property
    def status(self) -> int:
        """A command's exit status: 1 where something differs, else 2 where something could not be
        measured.
        """
        verdicts = {row.verdict for row in self.rows}
        return 0 if self.ok else 2 if FAILED in verdicts and DIFFERENT not in verdicts else 1

    def shown(self) -> Sequence[RenderableType]:
        """What people read: a table, and lines below it."""
        raise NotImplementedError

    def __rich__(self) -> Group:
        return Group(*self.shown())

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        """As the last line of a notebook's cell. (IPython looks for `_repr_pretty_` behind a
        dataclass's own `__repr__`.)
        """
        return {"text/plain": str(self)}

    def __str__(self) -> str:
        """Without colours; the table is at most 120 columns wide, and sentences are a line each."""
        file = io.StringIO()
        # A notebook's kernel sets FORCE_COLOR, and rich would draw beside the file.
        console = Console(
            file=file,
            width=120,
            highlight=False,
            no_color=True,
            force_terminal=False,
            force_jupyter=False,
        )
        for part in self.shown():
            console.print(part, soft_wrap=isinstance(part, Text))
        return file.getvalue().rstrip("\n")


#: A table's column: its title, what stands in it, and whether that is numbers.
Column = tuple[str, Callable[[R], str], bool]


def table(title: str, rows: Sequence[R], *columns: Column[R]) -> Table:
    """A line for every row: what it is, under this title, the columns, its verdict and its
    seconds.
    """
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    found.add_column(title, overflow="fold")
    for name, _, is_number in columns:
        found.add_column(name, justify="right" if is_number else "left", no_wrap=True)
    found.add_column("verdict")
    found.add_column("seconds", justify="right", no_wrap=True)
    for row in rows:
        found.add_row(
            row.what, *(cell(row) for _, cell, _ in columns), row.told(), f"{row.seconds:.1f}"
        )
    return found
