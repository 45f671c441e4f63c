"""Rows that are run one after another, and the result that they make."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest
from rich.console import RenderableType
from rich.text import Text

from detaug.system.progress import Progress
from detaug.verification.rows import PendingRow, Report, Row, run_rows, table


@dataclass(frozen=True)
class Found(Report[Row]):
    rows: tuple[Row, ...]

    def as_json(self) -> dict[str, Any]:
        return {"rows": [row.as_json() for row in self.rows]}

    def render(self) -> list[RenderableType]:
        return [
            table("run", self.rows, ("letters", lambda row: str(len(row.what)), True)),
            Text("word " * 50),
        ]


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
    assert Row("a", verdict).ok is Row("a", verdict).as_json()["ok"] is ok
    assert Found((Row("first"), Row("a", verdict))).ok is ok


def test_every_row_keeps_its_own_log_records_and_seconds() -> None:
    def noisy(what: str) -> Row:
        logging.getLogger("detaug").warning("said by %s", what)
        return Row(what)

    planned = [
        PendingRow("a", lambda: noisy("a")),
        PendingRow("b", lambda: Row("b")),
        PendingRow("c", lambda: noisy("c")),
    ]
    rows = list(run_rows(planned, Progress()))
    assert [row.notices for row in rows] == [("said by a",), (), ("said by c",)]
    assert all(row.seconds > 0 for row in rows)


def test_progress_is_told_before_each_row_with_all_the_work_there_is() -> None:
    told: list[tuple[str, int, int]] = []
    shown = Progress(on_action=lambda *what: told.append(what))
    list(run_rows([PendingRow("reference", lambda: Row("r"))], shown))

    def advancing() -> Row:
        shown.advance(2)  # of three: a row need not tell all of its work
        return Row("a")

    rows = run_rows([PendingRow("a", advancing, 3), PendingRow("b", lambda: Row("b"))], shown)
    next(rows)
    assert told == [("reference", 0, 1), ("a", 1, 5)], "the next one is run when it is asked for"
    next(rows)
    assert told[-1] == ("b", 4, 5)
    assert next(rows, None) is None
    assert (shown.done, shown.total) == (5, 5)


def test_result_as_text_has_a_line_a_row_and_does_not_break_sentences() -> None:
    lines = str(Found((Row("one", seconds=1.25), Row("three", "different")))).splitlines()
    assert [line.split() for line in lines[:3]] == [
        ["run", "letters", "verdict", "seconds"],
        ["one", "3", "reference", "1.2"],
        ["three", "5", "different", "0.0"],
    ]
    assert lines[3].split() == ["word"] * 50
