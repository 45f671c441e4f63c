"""Read the tables of docs/loops.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "loops.md"


def table_of(*columns: str) -> dict[str, dict[str, str]]:
    """Return the rows of the table with these columns, by the text in a row's first cell.

    A row is its other cells, by column.
    """
    tables = re.findall(r"(?:^\|.*\|\n)+", PAGE.read_text(), re.MULTILINE)
    for table in tables:
        head, _, *rows = [_cells(line) for line in table.splitlines()]
        if not set(columns) <= set(head):
            continue
        rows_by_name = {}
        for name, *cells in rows:
            rows_by_name[name] = dict(zip(head[1:], cells, strict=True))
        return rows_by_name
    raise AssertionError(f"{PAGE.name} has no table with the columns {', '.join(columns)}")


def _cells(line: str) -> list[str]:
    """Return the texts between the bars of a table's line."""
    return [cell.strip() for cell in line.strip("|").split("|")]
