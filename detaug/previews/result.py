"""What a preview found, and its picture: a contact sheet with a row for each sample and a column
for each transform.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from detaug.pictures.charts import figure_of
from detaug.pictures.planes import NOT_FINITE, OUTSIDE, Window, colour_of, draw, window_of
from detaug.previews.views import Sample, View
from detaug.reports.atomic_files import whole_file

#: Labels that the legend names.
_NAMED = 8

#: Of a column in inches, and in letters of a caption; columns of the narrowest sheet, which has
#: room for its words.
_WIDTH, _LETTERS, _LEAST = 2.5, 42, 3

#: Lines of a caption, and the height of one in inches; what is longer ends with an ellipsis.
_CAPTION_LINES, _LINE = 9, 0.14


@dataclass(frozen=True)
class Preview:
    """Samples on their way through a pipeline; `save` writes the contact sheet, and a notebook
    shows it.

    Attributes:
        title: of the sheet.
        subtitle: seed, epoch, channel.
        samples: the rows.
    """

    title: str
    subtitle: str
    samples: Sequence[Sample]

    @property
    def places(self) -> list[tuple[tuple[int, ...], str]]:
        """(place, name) of the columns: of transforms that changed at least one sample."""
        return sorted(
            {
                (step.place, step.name)
                for sample in self.samples
                for step in sample.steps
                if step.changed
            }
        )

    @property
    def unchanging(self) -> list[str]:
        """Names of transforms that were applied and changed no sample."""
        applied = {(step.place, step.name) for sample in self.samples for step in sample.steps}
        return [name for _, name in sorted(applied.difference(self.places))]

    @property
    def legend(self) -> dict[str, str]:
        """What the colours mean."""
        views = [
            view
            for each in self.samples
            for view in (each.before, *(step.view for step in each.steps))
        ]
        planes = [plane for view in views for plane in view.planes]
        labels = sorted({label for plane in planes for label in plane.masks})
        legend = {
            f"label {label}" + (" (outside)" if label == -1 else ""): colour_of(label)
            for label in labels[:_NAMED]
        }
        if len(labels) > _NAMED:
            legend[f"and {len(labels) - _NAMED} more; colours come again"] = OUTSIDE
        if any(not np.isfinite(plane.image).all() for plane in planes):
            legend["NaN or infinite"] = NOT_FINITE
        return legend

    @cached_property
    def png(self) -> bytes:
        """The contact sheet as a PNG."""
        names = ["as loaded", *(f"{n} {name}" for n, (_, name) in enumerate(self.places, 1))]
        columns = max(len(names), _LEAST)
        heights = [
            _WIDTH * sample.before.height + _CAPTION_LINES * _LINE / 2 for sample in self.samples
        ]
        figure = figure_of(f"{self.title}\n{self.subtitle}", _WIDTH * columns, sum(heights) + 1.5)
        grid = figure.subplots(
            len(heights), columns, squeeze=False, gridspec_kw={"height_ratios": heights}
        )
        for axes in grid.flat:
            axes.set_axis_off()
        for axes, name in zip(grid[0], names, strict=False):
            axes.set_title(name, loc="left", fontsize=10, fontweight="bold")
        for row, sample in zip(grid, self.samples, strict=True):
            window = window_of(sample.before.planes)
            for axes, (view, said) in zip(row, self._cells(sample), strict=False):
                _draw_cell(axes, view, window, said)
        figure.supxlabel(textwrap.fill(self._footer(), 34 * columns), x=0.01, ha="left", fontsize=8)
        if self.legend:
            from matplotlib.patches import Patch

            handles = [Patch(color=colour, label=name) for name, colour in self.legend.items()]
            figure.legend(
                handles=handles, loc="outside upper right", ncols=columns, fontsize=8, frameon=False
            )
        file = io.BytesIO()
        figure.savefig(file, format="png", dpi=100)
        return file.getvalue()

    def _footer(self) -> str:
        words = ""
        if self.unchanging:
            words = (
                "Applied without a change to these samples, and not shown:"
                f" {', '.join(self.unchanging)}. "
            )
        if any(len(sample.before.planes) > 1 for sample in self.samples):
            words += (
                "The planes in the middle of the volume, across each of its axes; the first axis"
                " runs upwards."
            )
        return words

    def _cells(self, sample: Sample) -> Iterator[tuple[View | None, list[str]]]:
        """What a sample's row shows in each column (None: nothing), and what is said of it."""
        yield sample.before, [sample.title, sample.before.size]
        steps = {step.place: step for step in sample.steps}
        for place, _ in self.places:
            step = steps.get(place)
            if step is None:
                yield None, ["not applied"]
            else:
                yield (
                    (step.view, step.caption)
                    if step.changed
                    else (None, ["no change", *step.caption])
                )

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
        return (
            f"<Preview of {self.title}: {len(self.samples)} samples, {stages or 'nothing changed'}>"
        )


def _draw_cell(axes: Any, view: View | None, usual: Window, said: list[str]) -> None:
    if view is None:
        axes.text(
            0, 1, _wrapped(said), transform=axes.transAxes, va="top", fontsize=7, color="dimgray"
        )
        return
    window = window_of(view.planes)
    if window[0] > usual[1] or window[1] < usual[0]:
        said = [*said, f"own grey scale: {window[0]:.3g} to {window[1]:.3g}"]
    else:
        window = usual
    axes.set_axis_on()
    draw(axes, view.planes, window)
    axes.set_anchor("NW")
    axes.set_xlabel(_wrapped(said), loc="left", fontsize=7)


def _wrapped(caption: Sequence[str]) -> str:
    lines = [line for each in caption for line in textwrap.wrap(each, _LETTERS)]
    return "\n".join([*lines[: _CAPTION_LINES - 1], "…"] if len(lines) > _CAPTION_LINES else lines)
