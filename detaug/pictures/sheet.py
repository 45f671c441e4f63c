"""A contact sheet: pictures in rows and columns with captions, as one PNG."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from detaug.pictures.charts import require_matplotlib
from detaug.pictures.rendering import Pixels

#: Width of a cell's pictures in pixels, and distances.
CELL = 232
_GAP, _MARGIN, _BETWEEN, _TIGHT = 20, 28, 10, 4

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
        from PIL import Image

        width = max(len(self.columns), _LEAST) * (CELL + _GAP)
        parts = [_text(self.title, _TITLE, width, bold=True), _text(self.subtitle, _TEXT, width, _PALE)]
        parts += [_text(f"□ {name}", _TEXT, width, colour, bold=True) for name, colour in self.legend.items()]
        parts += [_beside([_text(name, _TEXT, CELL, bold=True) for name in self.columns])]
        for row in self.rows:
            parts += [_text(row.title, _TEXT, width, _PALE), _beside([_drawn(cell) for cell in row.cells])]
        parts += [_text(note, _TEXT, width, _PALE) for note in self.notes]
        sheet = np.pad(
            _below(parts, _BETWEEN), ((_MARGIN, _MARGIN), (_MARGIN, _MARGIN - _GAP), (0, 0)), constant_values=255
        )
        file = io.BytesIO()
        Image.fromarray(sheet).save(file, "png")
        return file.getvalue()


def _drawn(cell: Cell) -> Pixels:
    colour = _INK if cell.pictures else _PALE
    caption = _text("\n".join(cell.caption), _CAPTION, CELL, colour, most=_CAPTION_LINES)
    return _below([*cell.pictures, caption], _TIGHT)


def _text(text: str, size: int, width: int, colour: str = _INK, bold: bool = False, most: int = 99) -> Pixels:
    """Lines of text, broken where they are wider."""
    from matplotlib import get_data_path
    from PIL import Image, ImageDraw, ImageFont

    lines = [line for each in text.splitlines() for line in textwrap.wrap(each, int(width / (_LETTER * size)))]
    if len(lines) > most:
        lines = [*lines[: most - 1], "…"]
    font = ImageFont.truetype(f"{get_data_path()}/fonts/ttf/DejaVuSans{'-Bold' if bold else ''}.ttf", size)
    picture = Image.new("RGB", (width, max(1, round(len(lines) * size * _LINE))), "white")
    for number, line in enumerate(lines):
        ImageDraw.Draw(picture).text((0, round(number * size * _LINE)), line, colour, font)
    return np.asarray(picture)


def _below(parts: Sequence[Pixels], gap: int) -> Pixels:
    width = max(part.shape[1] for part in parts)
    return np.concatenate([_padded(part, len(part) + gap, width) for part in parts])


def _beside(parts: Sequence[Pixels]) -> Pixels:
    height = max(map(len, parts))
    return np.concatenate([_padded(part, height, CELL + _GAP) for part in parts], axis=1)


def _padded(picture: Pixels, height: int, width: int) -> Pixels:
    """With white below and on the right."""
    return np.pad(picture, ((0, height - len(picture)), (0, width - picture.shape[1]), (0, 0)), constant_values=255)
