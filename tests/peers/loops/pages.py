"""Tables of docs/loops.md."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[3] / "docs" / "loops.md"


def table_of(*columns: str) -> dict[str, dict[str, str]]:
    """Return the table with these columns, by the entry in its first one."""
    blocks = re.findall(r"(?:^\|.*\|\n)+", PAGE.read_text(), re.MULTILINE)
    for block in blocks:
        head, _, *rows = (_cells(line) for line in block.splitlines())
        if set(columns) <= set(head):
            return {row[0]: dict(zip(head[1:], row[1:], strict=True)) for row in rows}
    raise AssertionError(f"{PAGE.name} has no table with the columns {', '.join(columns)}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]
