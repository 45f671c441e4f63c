"""The curves of two trainings, one above the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from detaug.pictures.charts import figure_of
from detaug.reports.atomic_files import whole_file


def draw_curves(
    title: str, a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]], picture: Path
) -> None:
    """Draw the curves that are in both trainings into a PNG file, a panel for each.

    Args:
        title: Stands above all panels.
        a: The first training's curves by their names, one number an epoch.
        b: The second training's.
        picture: The file to write.

    Raises:
        NotInstalled: matplotlib is not installed.
    """
    names = [name for name in a if name in b]
    figure = figure_of(title, 8, 0.6 + 2.1 * len(names))
    panels = figure.subplots(len(names), sharex=True, squeeze=False)[:, 0]
    for axes, name in zip(panels, names, strict=True):
        axes.plot(a[name], linewidth=3.0, label="A")
        axes.plot(b[name], linewidth=1.2, label="B")
        axes.set_title(name, loc="left", fontsize=10)
        axes.legend(frameon=False, fontsize=9)
    panels[-1].set_xlabel("epoch")
    with whole_file(picture) as file:
        figure.savefig(file, format="png", dpi=120)
