"""The result of a preview, and its picture: a contact sheet.

The sheet has a row for each sample and a column for each transform.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
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


@dataclass(frozen=True)
class Preview:
    """Samples on their way through a pipeline.

    `save` writes the contact sheet, and a notebook shows it.

    Attributes:
        title: of the sheet.
        subtitle: seed, epoch, channel.
        samples: the rows.
        is_compact: whether a cell has one plane, and a caption that a projector shows.
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
        names = ["as loaded"]
        names += [f"{number} {name}" for number, (_, name) in enumerate(self.places, 1)]
        columns = max(len(names), _LEAST)
        heights = []
        for sample in self.samples:
            height = self._shown(sample.before).height
            heights.append(_WIDTH * height + _CAPTION_LINES * _LINE / 2)
        figure = figure_of(f"{self.title}\n{self.subtitle}", _WIDTH * columns, sum(heights) + 1.5)
        grid = figure.subplots(
            len(heights), columns, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        for axes in grid.flat:
            axes.set_axis_off()
        for axes, name in zip(grid[0], names, strict=False):
            axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        for row, sample in zip(grid, self.samples, strict=True):
            window = window_of(self._shown(sample.before).planes)
            for axes, (view, caption) in zip(row, self._cells(sample), strict=False):
                shown = None if view is None else self._shown(view)
                _draw_cell(axes, shown, window, caption, is_compact=self.is_compact)
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

    def _cells(self, sample: Sample) -> Iterator[tuple[View | None, list[str]]]:
        """Yield (view or None, caption) for each column of a sample's row."""
        yield sample.before, [sample.title, sample.before.size]
        steps = {step.place: step for step in sample.steps}
        for place, _ in self.places:
            step = steps.get(place)
            if step is None:
                yield None, ["not applied"]
            elif step.changed:
                yield step.view, step.caption
            else:
                yield None, ["no change", *step.caption]

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


def _draw_cell(
    axes: Any, view: View | None, usual: Window, caption: list[str], *, is_compact: bool
) -> None:
    """Draw a view and its caption; None: the caption alone.

    Args:
        axes: of the cell.
        view: a sample at one moment.
        usual: the row's grey scale.
        caption: one text a line.
        is_compact: few lines in large letters.
    """
    size = 10 if is_compact else 7
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
        # The first params are the ones that matter: strength before details.
        return "\n".join(_cut(text, _COMPACT_LETTERS) for text in caption[:_COMPACT_LINES])
    lines: list[str] = []
    for text in caption:
        lines += textwrap.wrap(text, _LETTERS)
    if len(lines) > _CAPTION_LINES:
        lines = [*lines[: _CAPTION_LINES - 1], "…"]
    return "\n".join(lines)


def _cut(text: str, letters: int) -> str:
    """Return a text of at most `letters` characters; an ellipsis stands for the rest."""
    if len(text) <= letters:
        return text
    return f"{text[: letters - 1]}…"
