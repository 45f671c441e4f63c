"""The table of docs/loops.md is what loaders and loops do: `python -m tests.peers.loops.table` prints it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.peers.loops.table import LIBRARIES, MODULES, measure

PAGE = Path(__file__).parents[3] / "docs" / "loops.md"


def written() -> dict[str, dict[str, str]]:
    """The page's table: what each library has in each row."""
    lines = re.findall(r"^\|.*\|$", PAGE.read_text(), re.MULTILINE)
    start = next(
        number
        for number, line in enumerate(lines)
        if "StatefulDataLoader" in line and "detaug" in line
    )
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")] for line in lines[start : start + 7]
    )
    return {
        library: {row[0]: row[column] for row in rows}
        for column, library in enumerate(head)
        if column
    }


def test_the_table_has_all_libraries() -> None:
    assert list(written()) == list(LIBRARIES)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_column_of_the_table(library: str) -> None:
    pytest.importorskip(MODULES.get(library, "detaug"))
    assert {row: "yes" if found else "no" for row, found in measure(library).items()} == written()[
        library
    ]
