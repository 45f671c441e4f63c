"""Rows that are run one after another, and the report that they make."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
from rich.console import RenderableType
from rich.text import Text

from detaug.system.progress import Progress
from detaug.verification.rows import PendingRow, Report, Row, run_rows, table


def num_letters(row: Row) -> str:
    return str(len(row.what))


def pending(what: str) -> PendingRow:
    return PendingRow(what, partial(Row, what))


@dataclass(frozen=True)
class Letters(Report[Row]):
    """A report with a column of its own and a long line."""

    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        return {"rows": [row.as_json() for row in self.rows]}

    def render(self) -> list[RenderableType]:
        rows = table("run", self.rows, ("letters", num_letters, True))
        return [rows, Text("word " * 50)]


@pytest.mark.parametrize(
    ("verdict", "ok"),
    [
        ("reference", True),
        ("equal", True),
        ("not run", True),
        ("different", False),
        ("failed", False),
    ],
)
def test_what_differs_or_fails_is_not_ok(verdict: str, ok: bool) -> None:
    row = Row("a", verdict)
    assert row.ok is ok
    assert row.as_json()["ok"] is ok
    assert Letters((Row("first"), row)).ok is ok


def test_every_row_keeps_its_own_log_records_and_seconds() -> None:
    def noisy(what: str) -> Row:
        logging.getLogger("detaug").warning("said by %s", what)
        return Row(what)

    planned = [
        PendingRow("a", partial(noisy, "a")),
        pending("b"),
        PendingRow("c", partial(noisy, "c")),
    ]
    rows = list(run_rows(planned, Progress()))
    assert [row.notices for row in rows] == [("said by a",), (), ("said by c",)]
    for row in rows:
        assert row.seconds > 0


def test_progress_is_told_before_each_row_with_all_the_work_there_is() -> None:
    actions: list[tuple[str, int, int]] = []

    def on_action(*action: Any) -> None:
        actions.append(action)

    progress = Progress(on_action=on_action)
    list(run_rows([pending("reference")], progress))

    def advancing() -> Row:
        # Two of three: a row need not report all of its work.
        progress.advance(2)
        return Row("a")

    rows = run_rows([PendingRow("a", advancing, 3), pending("b")], progress)
    next(rows)
    assert actions == [("reference", 0, 1), ("a", 1, 5)], "the next one is run when it is asked for"
    next(rows)
    assert actions[-1] == ("b", 4, 5)
    assert next(rows, None) is None
    assert progress.done == 5
    assert progress.total == 5


def test_result_as_text_has_a_line_a_row_and_does_not_break_sentences() -> None:
    result = Letters((Row("one", seconds=1.25), Row("three", "different")))
    head, first, second, words, *_ = str(result).splitlines()
    assert head.split() == ["run", "letters", "verdict", "seconds"]
    assert first.split() == ["one", "3", "reference", "1.2"]
    assert second.split() == ["three", "5", "different", "0.0"]
    assert words.split() == ["word"] * 50
