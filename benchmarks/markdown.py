"""What all tables are made with."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

#: A file of `benchmarks/results`: ``environment``, and ``rows`` or ``parts``.
Result = dict[str, Any]


def read_results(folder: Path, pattern: str) -> list[tuple[Path, Result]]:
    """Return the files of a folder with their content, in the order of their names."""
    files = sorted(folder.glob(pattern))
    return [(file, json.loads(file.read_text(encoding="utf-8"))) for file in files]


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown, with a newline at its end."""
    lines = [f"| {' | '.join(headings)} |", f"|{'---|' * len(headings)}"]
    for row in rows:
        cells = [f" {cell} " if cell else " " for cell in row]
        lines.append(f"|{'|'.join(cells)}|")
    return "\n".join(lines) + "\n"


def number_text(value: float) -> str:
    """Return a ratio with about two digits."""
    if value < 2:
        return f"{value:.2f}"
    if value < 20:
        return f"{value:.1f}"
    return f"{value:.0f}"
