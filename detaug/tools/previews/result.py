"""The result of a preview, and its picture: a contact sheet.

The sheet has a row for each sample and a column for each transform.
"""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from detaug.system.atomic_files import whole_file
from detaug.tools.pictures.charts import figure_of
from detaug.tools.pictures.slices import (
    NOT_FINITE,
    OUTSIDE,
    Plane,
    Window,
    colour_of,
    draw,
    window_of,
)
from detaug.tools.previews.views import Sample, View

#: Labels that the legend names.
_NAMED = 8

#: The width of a column, in inches and in letters of a caption.
_WIDTH = 2.5
_LETTERS = 42
#: Columns of the narrowest sheet, which has room for its words.
_LEAST = 3

#: Lines of a caption; a longer one ends with an ellipsis.
_CAPTION_LINES = 9
#: The same of a compact sheet, which is read from afar: letters and lines of a caption.
_COMPACT_LETTERS = 28
_COMPACT_LINES = 3
#: The height of a caption's line in inches.
_LINE = 0.14
_COMPACT_LINE = 0.2

#: A number of a caption that is no whole one.
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[+-]\d+)?")


@dataclass(frozen=True)
class _Cell:
    """A cell of the sheet.

    Attributes:
        title: above it; "": none.
        view: None: the caption alone.
        caption: one text a line.
    """

    title: str
    view: View | None
    caption: list[str]


@dataclass(frozen=True)
class Preview:
    """Samples on their way through a pipeline.

    `save` writes the contact sheet, and a notebook shows it.

    Attributes:
        title: of the sheet.
        subtitle: seed, epoch, channel.
        samples: the rows.
        is_compact: whether a row has only the transforms that act, a cell one plane, and a
            caption that a projector shows.
        columns: what a column after the first is, "transform" or "strength".
    """

    title: str
    subtitle: str
    samples: Sequence[Sample]
    is_compact: bool = False
    columns: str = "transform"

    @property
    def summary(self) -> str:
        """What is on the sheet, in words."""
        rows = _counted(len(self.samples), "sample")
        columns = _counted(len(self.places), self.columns)
        if self.columns == "transform":
            return f"{rows}, {columns} that changed them"
        return f"{rows}, {columns}"

    @property
    def places(self) -> list[tuple[tuple[int, ...], str]]:
        """(place, name) of the columns: of transforms that changed at least one sample."""
        # A full sheet has the same columns in all rows, so that one sample is enough to need one.
        columns: set[tuple[tuple[int, ...], str]] = set()
        for sample in self.samples:
            columns.update((step.place, step.name) for step in sample.steps if step.changed)
        return sorted(columns)

    @property
    def unchanging(self) -> list[str]:
        """Names of transforms that were applied and changed no sample."""
        applied: set[tuple[tuple[int, ...], str]] = set()
        for sample in self.samples:
            applied.update((step.place, step.name) for step in sample.steps)
        return [name for _, name in sorted(applied.difference(self.places))]

    @property
    def legend(self) -> dict[str, str]:
        """Colours by their meaning."""
        planes: list[Plane] = []
        for sample in self.samples:
            planes += sample.before.planes
            for step in sample.steps:
                planes += step.view.planes
        labels = sorted(set().union(*(plane.masks for plane in planes)))
        legend: dict[str, str] = {}
        for label in labels[:_NAMED]:
            # nnU-Net's labels are -1 outside of the image and of its nonzero region.
            name = f"label {label} (outside)" if label == -1 else f"label {label}"
            legend[name] = colour_of(label)
        if len(labels) > _NAMED:
            legend[f"and {len(labels) - _NAMED} more; colours come again"] = OUTSIDE
        if any(not np.isfinite(plane.image).all() for plane in planes):
            legend["NaN or infinite"] = NOT_FINITE
        return legend

    @cached_property
    def png(self) -> bytes:
        """The contact sheet as a PNG."""
        return self.picture("png")

    def picture(self, kind: str) -> bytes:
        """Return the contact sheet as a file.

        Args:
            kind: "png", "svg" or "pdf".
        """
        rows = [self._row(sample, is_first=sample is self.samples[0]) for sample in self.samples]
        columns = max(_LEAST, *map(len, rows))
        captions = _CAPTION_LINES * _LINE / 2
        if self.is_compact:
            captions = (_COMPACT_LINES + 1) * _COMPACT_LINE
        heights = []
        for sample in self.samples:
            heights.append(_WIDTH * self._shown(sample.before).height + captions)
        figure = figure_of(f"{self.title}\n{self.subtitle}", _WIDTH * columns, sum(heights) + 1.5)
        grid = figure.subplots(
            len(heights), columns, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        for axes in grid.flat:
            axes.set_axis_off()
        for row_of_axes, row, sample in zip(grid, rows, self.samples, strict=True):
            # One window for the row, from the sample as loaded: in a window of its own, a
            # brightened image would look unchanged.
            window = window_of(self._shown(sample.before).planes)
            for axes, cell in zip(row_of_axes, row, strict=False):
                _draw_cell(axes, cell, window, is_compact=self.is_compact)
        figure.supxlabel(textwrap.fill(self._footer(), 34 * columns), x=0.01, ha="left", fontsize=8)
        if self.legend:
            _draw_legend(figure, self.legend, columns)
        file = io.BytesIO()
        figure.savefig(file, format=kind, dpi=100)
        return file.getvalue()

    def _shown(self, view: View) -> View:
        """Return what of a view is drawn."""
        if self.is_compact:
            return replace(view, planes=view.planes[-1:])
        return view

    def _footer(self) -> str:
        """Return the sentences below the sheet."""
        text = ""
        if self.unchanging:
            text = (
                "Applied without a change to these samples, and not shown:"
                f" {', '.join(self.unchanging)}. "
            )
        if not self.is_compact and any(len(sample.before.planes) > 1 for sample in self.samples):
            text += (
                "The planes in the middle of the volume, across each of its axes; the first axis"
                " runs upwards."
            )
        return text

    def _row(self, sample: Sample, *, is_first: bool) -> list[_Cell]:
        """Return the cells of a sample's row; the first row has the titles of all."""
        before = self._shown(sample.before)
        if self.is_compact:
            row = [_Cell("as loaded", before, [sample.title, before.size])]
            acting = [step for step in sample.steps if step.changed]
            row += [_Cell(step.name, self._shown(step.view), step.caption) for step in acting]
            return row
        row = [_Cell("as loaded" if is_first else "", before, [sample.title, before.size])]
        # Matched by place, because a sample has no step where a gate stayed closed.
        steps = {step.place: step for step in sample.steps}
        for number, (place, name) in enumerate(self.places, 1):
            title = f"{number} {name}" if is_first else ""
            step = steps.get(place)
            if step is None:
                row.append(_Cell(title, None, ["not applied"]))
            elif step.changed:
                row.append(_Cell(title, step.view, step.caption))
            else:
                row.append(_Cell(title, None, ["no change", *step.caption]))
        return row

    def save(self, file: str | Path) -> Path:
        """Write the contact sheet, as a PNG or by the file's suffix (.svg, .pdf).

        Raises:
            OSError: the file cannot be written.
        """
        path = Path(file)
        suffix = path.suffix[1:].lower()
        kind = suffix if suffix in ("svg", "pdf") else "png"
        with whole_file(path) as stream:
            stream.write(self.picture(kind))
        return path

    def _repr_png_(self) -> bytes:
        return self.png

    def __repr__(self) -> str:
        stages = ", ".join(name for _, name in self.places)
        return (
            f"<Preview of {self.title}: {len(self.samples)} samples, {stages or 'nothing changed'}>"
        )


def _counted(count: int, noun: str) -> str:
    """Return "1 sample" or "2 samples"."""
    if count == 1:
        return f"1 {noun}"
    return f"{count} {noun}s"


def _draw_legend(figure: Any, legend: dict[str, str], columns: int) -> None:
    """Draw colours and their meaning above the sheet."""
    from matplotlib.patches import Patch

    handles = [Patch(color=colour, label=name) for name, colour in legend.items()]
    figure.legend(
        handles=handles, loc="outside upper right", ncols=columns, fontsize=8, frameon=False
    )


def _draw_cell(axes: Any, cell: _Cell, usual: Window, *, is_compact: bool) -> None:
    """Draw a cell's title, view and caption.

    Args:
        axes: of the cell.
        cell: what is drawn.
        usual: the row's grey scale.
        is_compact: few lines in large letters.
    """
    size = 10 if is_compact else 7
    view = cell.view
    caption = cell.caption
    if cell.title:
        axes.set_title(cell.title, loc="left", fontsize=10, fontweight="bold")
    if view is None:
        text = _wrapped(caption, is_compact)
        axes.text(0, 1, text, transform=axes.transAxes, va="top", fontsize=size, color="dimgray")
        return
    window = usual
    low, high = window_of(view.planes)
    if low > usual[1] or high < usual[0]:
        # In the row's grey scale the view would be all black or all white.
        window = (low, high)
        caption = [*caption, f"own grey scale: {low:.3g} to {high:.3g}"]
    axes.set_axis_on()
    draw(axes, view.planes, window)
    axes.set_anchor("NW")
    axes.set_xlabel(_wrapped(caption, is_compact), loc="left", fontsize=size)


def _wrapped(caption: Sequence[str], is_compact: bool) -> str:
    """Return a caption that fits its column."""
    if is_compact:
        return "\n".join(_compact(caption)[:_COMPACT_LINES])
    lines: list[str] = []
    for text in caption:
        lines += textwrap.wrap(text, _LETTERS)
    if len(lines) > _CAPTION_LINES:
        lines = [*lines[: _CAPTION_LINES - 1], "…"]
    return "\n".join(lines)


def _compact(caption: Sequence[str]) -> list[str]:
    """Return the lines of a caption that a listener can read: numbers of three digits, no matrix.

    The first params are the ones that matter: strength before details.
    """
    lines = []
    for text in caption:
        short = _NUMBER.sub(_three_digits, text)
        # A list of one number is that number, a list of one list that list.
        short = re.sub(r"=\[([^\[\],]+)\]$", r"=\1", short)
        short = re.sub(r"=\[(\[[^\[\]]+\])\]$", r"=\1", short)
        if len(short) <= _COMPACT_LETTERS:
            lines.append(short)
        elif "=" not in short:
            lines.append(f"{short[: _COMPACT_LETTERS - 1]}…")
    return lines


def _three_digits(number: re.Match[str]) -> str:
    """Return a number with three significant digits."""
    return f"{float(number[0]):.3g}"
