"""What a preview found, and its picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from detaug.pictures.rendering import NOT_FINITE, OUTSIDE, colour_of, fits, rendered, window_of
from detaug.pictures.sheet import CELL, Cell, Sheet, SheetRow
from detaug.previews.recording import Step
from detaug.previews.views import View
from detaug.reports.atomic_files import whole_file

#: Labels that the legend names.
_NAMED = 8


@dataclass(frozen=True)
class Sample:
    """A row of the sheet.

    Attributes:
        title: which sample it is.
        before: as it was loaded.
        steps: what each transform that was applied made of it.
        delivered: as it is in the batch, where that looks otherwise than after the last step; else None.
    """

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
        return sorted(
            {(step.place, step.name) for sample in self.samples for step, changed in _changes(sample) if changed}
        )

    @property
    def unchanging(self) -> list[str]:
        """Names of transforms that were applied and changed no sample."""
        shown = {place for place, _ in self.places}
        rest = {(step.place, step.name) for sample in self.samples for step in sample.steps if step.place not in shown}
        return [name for _, name in sorted(rest)]

    @cached_property
    def png(self) -> bytes:
        """The contact sheet as a PNG.

        Raises:
            NotInstalled: matplotlib is not.
        """
        return self.sheet().png()

    def save(self, file: str | Path) -> Path:
        """Write the contact sheet as a PNG.

        Raises:
            OSError: the file cannot be written.
            NotInstalled: matplotlib is not.
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

    def sheet(self) -> Sheet:
        """What is drawn."""
        places = self.places
        delivered = any(sample.delivered is not None for sample in self.samples)
        columns = [
            "as loaded",
            *(f"{n} {name}" for n, (_, name) in enumerate(places, 1)),
            *([self.last] if delivered else []),
        ]
        rows = [self._row(sample, [place for place, _ in places], delivered) for sample in self.samples]
        notes = []
        if self.unchanging:
            notes.append(f"Applied without a change to these samples, and not shown: {', '.join(self.unchanging)}.")
        views = {plane.view for sample in self.samples for plane in sample.before.planes if plane.view}
        if views:
            notes.append(
                "The planes in the middle of the volume: axial (front above, right on the left), coronal, sagittal."
            )
        return Sheet(self.title, self.subtitle, columns, rows, self._legend(), notes)

    def _row(self, sample: Sample, places: Sequence[tuple[int, ...]], delivered: bool) -> SheetRow:
        window = window_of(sample.before.planes)
        cells = [_cell(sample.before, window, [_size(sample.before)])]
        found = {step.place: (step, changed, before) for step, changed, before in _with_before(sample)}
        for place in places:
            if place not in found:
                cells.append(Cell(caption=["not applied"]))
                continue
            step, changed, before = found[place]
            if not changed:
                cells.append(Cell(caption=["no change", *step.caption]))
                continue
            sizes = [] if step.view.shape == before.shape else [_size(step.view)]
            cells.append(_cell(step.view, window, [*sizes, *step.caption]))
        if delivered:
            last = sample.delivered
            cells.append(Cell(caption=["no change"]) if last is None else _cell(last, window, [_size(last)]))
        return SheetRow(sample.title, cells)

    def _legend(self) -> dict[str, str]:
        planes = [
            plane
            for sample in self.samples
            for view in (sample.before, *(step.view for step in sample.steps), sample.delivered)
            if view is not None
            for plane in view.planes
        ]
        labels = sorted({label for plane in planes for label in plane.masks}, key=lambda label: (label < 0, label))
        shown = labels if len(labels) <= _NAMED else labels[: _NAMED - 1]
        legend = {f"label {label}" + (" (outside)" if label == -1 else ""): colour_of(label) for label in shown}
        if len(shown) < len(labels):
            legend[f"and {len(labels) - len(shown)} more; colours come again"] = OUTSIDE
        if any(not np.isfinite(plane.image).all() for plane in planes):
            legend["NaN or infinite"] = NOT_FINITE
        return legend


def _with_before(sample: Sample) -> list[tuple[Step, bool, View]]:
    before, found = sample.before, []
    for step in sample.steps:
        found.append((step, step.view.print != before.print, before))
        before = step.view
    return found


def _changes(sample: Sample) -> list[tuple[Step, bool]]:
    return [(step, changed) for step, changed, _ in _with_before(sample)]


def _cell(view: View, window: tuple[float, float], caption: list[str]) -> Cell:
    if not fits(window, view.planes):
        window = window_of(view.planes)
        caption = [*caption, f"own grey scale: {window[0]:.3g} to {window[1]:.3g}"]
    bad = sum(int((~np.isfinite(plane.image)).sum()) for plane in view.planes)
    if bad:
        caption = [*caption, f"{bad} pixels NaN or infinite"]
    widest = max(plane.image.shape[1] for plane in view.planes)
    pictures = [rendered(plane, max(1, round(CELL * plane.image.shape[1] / widest)), window) for plane in view.planes]
    return Cell(pictures, caption)


def _size(view: View) -> str:
    return " × ".join(map(str, view.shape[1:])) + " voxels"
