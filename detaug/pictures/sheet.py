"""A contact sheet: pictures in rows and columns with captions, as one PNG."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from detaug.pictures.palette import rgb
from detaug.pictures.rendering import Pixels
from detaug.pictures.requirements import require_matplotlib

if TYPE_CHECKING:
    from PIL import Image, ImageDraw, ImageFont

#: Width of a cell's pictures in pixels, and distances.
CELL = 232
_GAP, _MARGIN, _TIGHT = 20, 28, 4
_SIZES = {"title": 25, "text": 15, "column": 16, "caption": 13}
_INK, _PALE, _LINE = (32, 33, 36), (112, 117, 122), (222, 224, 228)

#: Width of the narrowest sheet, which has room for its words.
_LEAST = 2 * _MARGIN + 3 * (CELL + _GAP) - _GAP

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
        from PIL import Image, ImageDraw

        measuring = _Painter(ImageDraw.Draw(Image.new("RGB", (1, 1))), None)
        height = measuring.paint(self)
        width = 2 * _MARGIN + len(self.columns) * (CELL + _GAP) - _GAP
        canvas = Image.new("RGB", (max(width, _LEAST), height + _MARGIN), "white")
        _Painter(ImageDraw.Draw(canvas), canvas).paint(self)
        file = io.BytesIO()
        canvas.save(file, "PNG", optimize=True)
        return file.getvalue()


class _Painter:
    """Paints from the top to the bottom; without a canvas it only finds how high all is."""

    def __init__(self, draw: ImageDraw.ImageDraw, canvas: Image.Image | None) -> None:
        self._draw = draw
        self._canvas = canvas

    def paint(self, sheet: Sheet) -> int:
        """Paint it; returns the height."""
        from PIL import Image

        full = max(2 * _MARGIN + len(sheet.columns) * (CELL + _GAP) - _GAP, _LEAST) - 2 * _MARGIN
        y = _MARGIN
        y = self._text(_MARGIN, y, sheet.title, "title", full, bold=True)
        y = self._text(_MARGIN, y + 4, sheet.subtitle, "text", full, _PALE)
        if sheet.legend:
            y = self._legend(y + 8, sheet.legend, full)
        y += 18
        bottoms = [
            self._text(self._x(n), y, _breakable(name), "column", CELL, bold=True)
            for n, name in enumerate(sheet.columns)
        ]
        y = max([y, *bottoms])
        for row in sheet.rows:
            self._line(y + 10, full)
            y = self._text(_MARGIN, y + 18, row.title, "text", full, _PALE) + 8
            ends = [y]
            for n, cell in enumerate(row.cells):
                at = y
                for picture in cell.pictures:
                    offset = (CELL - picture.shape[1]) // 2
                    if self._canvas is not None:
                        self._canvas.paste(Image.fromarray(picture), (self._x(n) + offset, at))
                    at += picture.shape[0] + _TIGHT
                if cell.caption:
                    at = self._caption(self._x(n), at + 4 if cell.pictures else at, cell)
                ends.append(at)
            y = max(ends) + 6
        if sheet.notes:
            self._line(y + 8, full)
            y += 16
            for note in sheet.notes:
                y = self._text(_MARGIN, y, note, "text", full, _PALE) + 2
        return y

    def _x(self, column: int) -> int:
        return _MARGIN + column * (CELL + _GAP)

    def _line(self, y: int, width: int) -> None:
        self._draw.line([(_MARGIN, y), (_MARGIN + width, y)], _LINE, 1)

    def _legend(self, y: int, legend: Mapping[str, str], full: int) -> int:
        font, x, height = _font("text"), _MARGIN, _SIZES["text"]
        for name, colour in legend.items():
            width = int(self._draw.textlength(name, font=font))
            if x + 24 + width > _MARGIN + full and x > _MARGIN:
                x, y = _MARGIN, y + height + 8
            self._draw.rectangle([x, y + 3, x + 14, y + 15], outline=rgb(colour), width=3)
            self._draw.text((x + 21, y), name, _INK, font=font)
            x += 21 + width + 22
        return y + height + 4

    def _caption(self, x: int, y: int, cell: Cell) -> int:
        lines = [part for line in cell.caption for part in self._wrapped(line, "caption", CELL)]
        if len(lines) > _CAPTION_LINES:
            lines = [*lines[: _CAPTION_LINES - 1], "…"]
        for line in lines:
            y = self._text(x, y, line, "caption", CELL, _INK if cell.pictures else _PALE)
        return y

    def _text(
        self, x: int, y: int, text: str, kind: str, width: int, colour: tuple[int, int, int] = _INK, bold: bool = False
    ) -> int:
        """Returns where the next line begins."""
        for line in self._wrapped(text, kind, width, bold):
            self._draw.text((x, y), line.replace(_BREAK, ""), colour, font=_font(kind, bold))
            y += int(_SIZES[kind] * 1.35)
        return y

    def _wrapped(self, text: str, kind: str, width: int, bold: bool = False) -> list[str]:
        font = _font(kind, bold)
        lines, line = [], ""
        for word in text.replace(_BREAK, _BREAK + "\0").replace(" ", " \0").split("\0"):
            if line and self._draw.textlength((line + word).rstrip().replace(_BREAK, ""), font=font) > width:
                lines.append(line.rstrip())
                line = ""
            line += word
        return [*lines, line] if line else lines


#: Where a long name may be broken.
_BREAK = "\u200b"


def _breakable(name: str) -> str:
    """A name in CamelCase with places to break it."""
    return "".join(
        (_BREAK if n and each.isupper() and not name[n - 1].isupper() and name[n - 1] != " " else "") + each
        for n, each in enumerate(name)
    )


def _font(kind: str, bold: bool = False) -> ImageFont.FreeTypeFont:
    key = (kind, bold)
    if key not in _fonts:
        import matplotlib
        from PIL import ImageFont

        name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
        _fonts[key] = ImageFont.truetype(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / name, _SIZES[kind])
    font: ImageFont.FreeTypeFont = _fonts[key]
    return font


_fonts: dict[tuple[str, bool], Any] = {}
