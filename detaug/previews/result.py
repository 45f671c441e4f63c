"""What a preview found, and its picture: a contact sheet with a row for each sample and a column for each transform."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from detaug.pictures.charts import require_matplotlib
from detaug.pictures.planes import NOT_FINITE, OUTSIDE, Pixels, Window, colour_of, fits, rendered, window_of
from detaug.previews.views import Step, View
from detaug.reports.atomic_files import whole_file

#: Labels that the legend names.
_NAMED = 8

#: Width of a cell's pictures in pixels, and distances; columns of the narrowest sheet, which has room for its words.
_CELL, _GAP, _MARGIN, _BETWEEN, _TIGHT = 232, 20, 28, 10, 4
_LEAST = 3

#: Height of letters in pixels, height of a line over it, and the mean width of a letter of the font over its height.
_TITLE, _TEXT, _CAPTION = 25, 15, 13
_LINE, _LETTER = 1.35, 0.57
_INK, _PALE = "#202124", "#70757a"

#: Lines of a caption; what is longer ends with an ellipsis.
_CAPTION_LINES = 9


@dataclass(frozen=True)
class Sample:
    """A row of the sheet: a sample as it was loaded, what each transform that was applied made of it, and as it is in the batch,
    where that looks otherwise than after the last step."""

    title: str
    before: View
    steps: Sequence[Step]
    delivered: View | None = None


@dataclass(frozen=True)
class Preview:
    """Samples on their way through a pipeline; `save` writes the contact sheet, and a notebook shows it.

    Attributes:
        title: of the sheet.
        subtitle: seed, epoch, channel.
        samples: the rows.
        last: what the column of what was delivered is called.
    """

    title: str
    subtitle: str
    samples: Sequence[Sample]
    last: str = "as delivered"

    @property
    def places(self) -> list[tuple[tuple[int, ...], str]]:
        """(place, name) of the columns: of transforms that changed at least one sample."""
        return sorted({(step.place, step.name) for sample in self.samples for step in sample.steps if step.changed})

    @property
    def unchanging(self) -> list[str]:
        """Names of transforms that were applied and changed no sample."""
        applied = {(step.place, step.name) for sample in self.samples for step in sample.steps}
        return [name for _, name in sorted(applied.difference(self.places))]

    @property
    def legend(self) -> dict[str, str]:
        """What the colours mean."""
        views = [v for s in self.samples for v in (s.before, *(step.view for step in s.steps), s.delivered) if v]
        planes = [plane for view in views for plane in view.planes]
        labels = sorted({label for plane in planes for label in plane.masks}, key=lambda label: (label < 0, label))
        shown = labels if len(labels) <= _NAMED else labels[: _NAMED - 1]
        legend = {f"label {label}" + (" (outside)" if label == -1 else ""): colour_of(label) for label in shown}
        if len(shown) < len(labels):
            legend[f"and {len(labels) - len(shown)} more; colours come again"] = OUTSIDE
        if any(not np.isfinite(plane.image).all() for plane in planes):
            legend["NaN or infinite"] = NOT_FINITE
        return legend

    @cached_property
    def png(self) -> bytes:
        """The contact sheet as a PNG."""
        require_matplotlib()
        from PIL import Image

        delivered = any(sample.delivered is not None for sample in self.samples)
        names = ["as loaded", *(f"{n} {name}" for n, (_, name) in enumerate(self.places, 1))]
        names += [self.last] if delivered else []
        width = max(len(names), _LEAST) * (_CELL + _GAP)
        parts = [_text(self.title, _TITLE, width, bold=True), _text(self.subtitle, _TEXT, width, _PALE)]
        parts += [_text(f"□ {name}", _TEXT, width, colour, bold=True) for name, colour in self.legend.items()]
        parts += [_beside([_text(name, _TEXT, _CELL, bold=True) for name in names])]
        for sample in self.samples:
            parts += [_text(sample.title, _TEXT, width, _PALE), _beside(self._cells(sample, delivered))]
        if self.unchanging:
            text = f"Applied without a change to these samples, and not shown: {', '.join(self.unchanging)}."
            parts.append(_text(text, _TEXT, width, _PALE))
        if any(len(sample.before.planes) > 1 for sample in self.samples):
            text = "The planes in the middle of the volume, across each of its axes; the first axis runs upwards."
            parts.append(_text(text, _TEXT, width, _PALE))
        edges = ((_MARGIN, _MARGIN), (_MARGIN, _MARGIN - _GAP), (0, 0))
        file = io.BytesIO()
        Image.fromarray(np.pad(_below(parts, _BETWEEN), edges, constant_values=255)).save(file, "png")
        return file.getvalue()

    def _cells(self, sample: Sample, delivered: bool) -> list[Pixels]:
        """A sample's row, without its title."""
        window = window_of(sample.before.planes)
        cells = [_cell(sample.before, window, [sample.before.size])]
        steps = {step.place: step for step in sample.steps}
        for place, _ in self.places:
            step = steps.get(place)
            if step is None:
                cells.append(_words(["not applied"], _PALE))
            elif step.changed:
                cells.append(_cell(step.view, window, step.caption))
            else:
                cells.append(_words(["no change", *step.caption], _PALE))
        if delivered:
            last = sample.delivered
            cells.append(_words(["no change"], _PALE) if last is None else _cell(last, window, [last.size]))
        return cells

    def save(self, file: str | Path) -> Path:
        """Write the contact sheet as a PNG.

        Raises:
            OSError: the file cannot be written.
        """
        path = Path(file)
        with whole_file(path) as opened:
            opened.write(self.png)
        return path

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        stages = ", ".join(name for _, name in self.places)
        return f"<Preview of {self.title}: {len(self.samples)} samples, {stages or 'nothing changed'}>"


def _cell(view: View, window: Window, caption: Sequence[str]) -> Pixels:
    """The planes, one below another, and what is said of them."""
    if not fits(window, view.planes):
        window = window_of(view.planes)
        caption = [*caption, f"own grey scale: {window[0]:.3g} to {window[1]:.3g}"]
    bad = sum(int((~np.isfinite(plane.image)).sum()) for plane in view.planes)
    caption = [*caption, f"{bad} pixels NaN or infinite"] if bad else caption
    widest = max(plane.image.shape[1] for plane in view.planes)
    pictures = [rendered(plane, max(1, round(_CELL * plane.image.shape[1] / widest)), window) for plane in view.planes]
    return _below([*pictures, _words(caption)], _TIGHT)


def _words(caption: Sequence[str], colour: str = _INK) -> Pixels:
    return _text("\n".join(caption), _CAPTION, _CELL, colour, most=_CAPTION_LINES)


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
    return np.concatenate([_padded(part, height, _CELL + _GAP) for part in parts], axis=1)


def _padded(picture: Pixels, height: int, width: int) -> Pixels:
    """With white below and on the right."""
    return np.pad(picture, ((0, height - len(picture)), (0, width - picture.shape[1]), (0, 0)), constant_values=255)
