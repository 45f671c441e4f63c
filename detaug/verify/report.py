"""The result as a table with a verdict a row, and the causes below it."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from detaug.reports.verdicts import NOT_RUN, STYLES

if TYPE_CHECKING:
    from detaug.verify.result import Cause, Result, Row


def report(result: Result) -> Group:
    """All of the result, for a rich console."""
    parts: list[Table | Text] = [table(result.rows)]
    for cause in result.causes:
        parts += [Text(), *_cause(cause)]
    parts.append(Text())
    parts.append(_stateless(result))
    parts += [Text(f"note: {note}", "dim") for note in result.notes]
    parts.append(verdict(result))
    return Group(*parts)


def table(rows: tuple[Row, ...]) -> Table:
    """A verdict a row."""
    found = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    found.add_column("the same batches again")
    found.add_column("batches", justify="right", no_wrap=True)
    found.add_column("verdict")
    found.add_column("seconds", justify="right", no_wrap=True)
    for row in rows:
        text = Text(row.verdict, STYLES.get(row.verdict, "yellow"))
        if row.differing:
            text.append(f", {row.differing} of {row.batches}", "default")
        if row.first is not None:
            text.append(f", first epoch {row.first[0]}, step {row.first[1]}", "default")
        if row.detail:
            text.append(f" ({row.detail})", "dim")
        found.add_row(row.what, str(row.batches), text, f"{row.seconds:.1f}")
    return found


def _cause(cause: Cause) -> list[Text]:
    lines = [Text("repaired by detaug: " if cause.repaired else "cause: ", "yellow" if cause.repaired else "bold red")]
    lines[0].append(str(cause), "default")
    if cause.difference is not None:
        lines.append(Text(f"  first differs in {cause.difference}"))
    return lines


def _stateless(result: Result) -> Text:
    text = Text("stateless=True: ", "bold")
    text.append("yes, " if result.stateless.allowed else "no, ", "green" if result.stateless.allowed else "yellow")
    text.append(result.stateless.reason, "default")
    return text


def verdict(result: Result) -> Text:
    """One sentence."""
    seconds = f" ({result.batches} batches a row, seed {result.seed}, {result.seconds:.0f} s)"
    left_out = sum(row.verdict == NOT_RUN for row in result.rows)
    if result.ok and left_out:
        what = f"equal in all rows but {left_out} that could not be run"
        return Text(what, "bold yellow").append(seconds, "dim")
    if result.ok:
        return Text("equal: the same bytes in the same order in every row", "bold green").append(seconds, "dim")
    rows = sum(not row.ok for row in result.rows)
    return Text(f"different: {rows} of {len(result.rows)} rows differ", "bold red").append(seconds, "dim")


def as_text(result: Result, width: int = 120) -> str:
    """The same without colours; the table is at most `width` columns wide, and sentences are a line each."""
    file = io.StringIO()
    console = Console(file=file, width=width, highlight=False, no_color=True)
    for part in report(result).renderables:
        console.print(part, soft_wrap=isinstance(part, Text))
    return file.getvalue().rstrip("\n")
