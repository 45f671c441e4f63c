"""A contact sheet: pictures in rows and columns with captions, as one PNG."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detaug.pictures.rendering import Pixels
from detaug.pictures.requirements import require_matplotlib

#: Width of a cell's pictures in pixels, and distances.
CELL = 232
_GAP, _MARGIN, _TIGHT = 20, 28, 4

#: Height of letters in pixels, height of a line over it, and the mean width of a letter of the font over its height.
_TITLE, _TEXT, _CAPTION = 25, 15, 13
_LINE, _LETTER = 1.35, 0.57
_INK, _PALE = "#202124", "#70757a"

#: Columns of the narrowest sheet, which has room for its words.
_LEAST = 3

#: Lines of a caption; what is longer ends with an ellipsis.
_CAPTION_LINES = 9


@dataclass(frozen=True)
class Cell:
    """Some pictures, one below another, and what is said of them.

    Attributes:
        pictures: (rows, at most `CELL`, 3) uint8.
        caption: lines.
    """

    pictures: Sequence[Pixels] = ()
    caption: Sequence[str] = ()


@dataclass(frozen=True)
class SheetRow:
    """A row of cells.

    Attributes:
        title: above it.
        cells: one for each column; a cell without pictures is a word in pale letters.
    """

    title: str
    cells: Sequence[Cell]


@dataclass(frozen=True)
class Sheet:
    """What is on the sheet.

    Attributes:
        title, subtitle: above all.
        columns: what is above each column.
        rows: of as many cells.
        legend: name → colour.
        notes: lines below all.
    """

    title: str
    subtitle: str
    columns: Sequence[str]
    rows: Sequence[SheetRow]
    legend: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def png(self) -> bytes:
        """The sheet as a file.

        Raises:
            NotInstalled: what draws it is not.
        """
        require_matplotlib()
        from matplotlib.figure import Figure

        painted = _Painted(max(len(self.columns), _LEAST) * (CELL + _GAP) - _GAP)
        y = painted.text(0, _MARGIN, self.title, _TITLE, weight="bold")
        y = painted.text(0, y + 4, self.subtitle, _TEXT, color=_PALE) + 8
        for name, colour in self.legend.items():
            y = painted.text(0, y, f"□ {name}", _TEXT, color=colour, weight="bold")
        y = max(painted.text(n, y + 18, name, _TEXT, CELL, weight="bold") for n, name in enumerate(self.columns))
        for row in self.rows:
            y = painted.text(0, y + 18, row.title, _TEXT, color=_PALE) + 8
            y = max(painted.cell(n, y, cell) for n, cell in enumerate(row.cells)) + 6
        for note in self.notes:
            y = painted.text(0, y + 8, note, _TEXT, color=_PALE)
        width, height = painted.width + 2 * _MARGIN, round(y + _MARGIN)
        figure = Figure(figsize=(width / 100, height / 100), dpi=100)
        for x, top, picture in painted.pictures:
            figure.figimage(picture, x, height - top - len(picture), origin="upper")
        for x, above, line, style in painted.lines:
            figure.text(x / width, 1 - above / height, line, va="top", parse_math=False, **style)
        file = io.BytesIO()
        figure.savefig(file, format="png", metadata={"Software": None})
        return file.getvalue()


class _Painted:
    """Where everything goes, in pixels from the top left, before the height of the sheet is known."""

    def __init__(self, width: int) -> None:
        self.width = width
        self.pictures: list[tuple[int, int, Pixels]] = []
        self.lines: list[tuple[int, float, str, dict[str, Any]]] = []

    def text(self, column: int, y: float, text: str, size: int, width: int = 0, most: int = 99, **style: str) -> float:
        """Lines of text at a column; returns where the next one begins."""
        lines = textwrap.wrap(text, int((width or self.width) / (_LETTER * size)))
        if len(lines) > most:
            lines = [*lines[: most - 1], "…"]
        for line in lines:
            about = {"color": _INK, "fontsize": size * 0.72, "family": "DejaVu Sans", **style}
            self.lines.append((_MARGIN + column * (CELL + _GAP), y, line, about))
            y += size * _LINE
        return y

    def cell(self, column: int, y: float, cell: Cell) -> float:
        """Its pictures, and its caption below them; returns where it ends."""
        for picture in cell.pictures:
            x = _MARGIN + column * (CELL + _GAP) + (CELL - picture.shape[1]) // 2
            self.pictures.append((x, round(y), np.asarray(picture)))
            y += len(picture) + _TIGHT
        left = _CAPTION_LINES
        for line in cell.caption:
            before = len(self.lines)
            if left > 0:
                colour = _INK if cell.pictures else _PALE
                y = self.text(column, y, line, _CAPTION, CELL, left, color=colour)
            left -= len(self.lines) - before
        return y
