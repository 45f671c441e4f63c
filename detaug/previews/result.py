"""What a preview found, and its picture: a contact sheet with a row for each sample and a column for each transform."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from detaug.pictures.charts import figure_of
from detaug.pictures.planes import NOT_FINITE, OUTSIDE, Window, colour_of, draw, window_of
from detaug.previews.views import Step, View
from detaug.reports.atomic_files import whole_file

#: Labels that the legend names.
_NAMED = 8

#: Of a column in inches, and in letters of a caption; columns of the narrowest sheet, which has room for its words.
_WIDTH, _LETTERS, _LEAST = 2.5, 42, 3

#: Lines of a caption, and the height of one in inches; what is longer ends with an ellipsis.
_CAPTION_LINES, _LINE = 9, 0.14


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
        delivered = [self.last] if any(sample.delivered is not None for sample in self.samples) else []
        names = ["as loaded", *(f"{n} {name}" for n, (_, name) in enumerate(self.places, 1)), *delivered]
        columns = max(len(names), _LEAST)
        heights = [_WIDTH * sample.before.height + _CAPTION_LINES * _LINE / 2 for sample in self.samples]
        figure = figure_of(f"{self.title}\n{self.subtitle}", _WIDTH * columns, sum(heights) + 1.5)
        grid = figure.subplots(len(heights), columns, squeeze=False, gridspec_kw={"height_ratios": heights})
        for axes in grid.flat:
            axes.set_axis_off()
        for axes, name in zip(grid[0], names, strict=False):
            axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        for row, sample in zip(grid, self.samples, strict=True):
            self._draw(row, sample, bool(delivered))
        figure.supxlabel(textwrap.fill(self._footer(), 34 * columns), x=0.01, ha="left", fontsize=8)
        if self.legend:
            from matplotlib.patches import Patch

            handles = [Patch(color=colour, label=name) for name, colour in self.legend.items()]
            figure.legend(handles=handles, loc="outside upper right", ncols=columns, fontsize=8, frameon=False)
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=100)
        return file.getvalue()

    def _footer(self) -> str:
        words = ""
        if self.unchanging:
            words = f"Applied without a change to these samples, and not shown: {', '.join(self.unchanging)}. "
        if any(len(sample.before.planes) > 1 for sample in self.samples):
            words += "The planes in the middle of the volume, across each of its axes; the first axis runs upwards."
        return words

    def _draw(self, row: Sequence[Any], sample: Sample, delivered: bool) -> None:
        """A sample's cells."""
        window = window_of(sample.before.planes)
        _cell(row[0], sample.before, window, [sample.title, sample.before.size])
        steps = {step.place: step for step in sample.steps}
        for axes, (place, _) in zip(row[1:], self.places, strict=False):
            step = steps.get(place)
            if step is None:
                _words(axes, ["not applied"])
            elif step.changed:
                _cell(axes, step.view, window, step.caption)
            else:
                _words(axes, ["no change", *step.caption])
        if delivered:
            axes, last = row[len(self.places) + 1], sample.delivered
            _words(axes, ["no change"]) if last is None else _cell(axes, last, window, [last.size])

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


def _cell(axes: Any, view: View, usual: Window, caption: Sequence[str]) -> None:
    """The planes, and what is said of them."""
    window = window_of(view.planes, usual)
    own = [] if window == usual else [f"own grey scale: {window[0]:.3g} to {window[1]:.3g}"]
    axes.set_axis_on()
    draw(axes, view.planes, window)
    axes.set_anchor("NW")
    axes.set_xlabel(_wrapped([*caption, *own]), loc="left", fontsize=7)


def _words(axes: Any, caption: Sequence[str]) -> None:
    axes.text(0, 1, _wrapped(caption), transform=axes.transAxes, va="top", fontsize=7, color="dimgray")


def _wrapped(caption: Sequence[str]) -> str:
    lines = [line for each in caption for line in textwrap.wrap(each, _LETTERS)]
    return "\n".join([*lines[: _CAPTION_LINES - 1], "…"] if len(lines) > _CAPTION_LINES else lines)
