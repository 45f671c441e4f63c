"""`python -m benchmarks.order_picture FILE.png`: the front page's picture of the batches' order.

Two runs of the stock augmenter and two of detaug's with one seed, on the demo's real MRI.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np

from detaug import fingerprint
from detaug.demo.run import OURS, STOCK, augmenter_of
from detaug.tools.pictures.charts import figure_of

PATCH = 64
PROCESSES = 2
SHOWN = 10  # batches
KILLED_AT = 3

#: Of Okabe and Ito's palette, which colour-blind readers can tell apart.
RED = "#D55E00"
BLUE = "#0072B2"

#: A batch's fingerprint, and a plane of its first sample.
Batch = tuple[str, np.ndarray]


def _run(name: str, kill: bool) -> list[Batch]:
    """Return the batches in the order in which they arrive."""
    batches = []
    with augmenter_of(name, PROCESSES, PATCH) as augmenter:
        for number in range(SHOWN):
            batch = next(augmenter)
            pid = batch.pop("pid")
            if kill and number == KILLED_AT:
                os.kill(pid, signal.SIGKILL)
            batches.append((fingerprint(batch), np.array(batch["data"][0, 0, PATCH // 2])))
    return batches


def draw(file: Path) -> None:
    """Make the batches, and write the picture."""
    figure = figure_of("", 10, 5.3)
    sheets = figure.subfigures(4, 1, hspace=0.02)
    first_stock = _run(STOCK, kill=False)
    _draw_first(sheets[0], f"{STOCK}, run 1", first_stock)
    _draw_second(sheets[1], "run 2, same seeds", first_stock, _run(STOCK, kill=False))
    first = _run(OURS, kill=False)
    _draw_first(sheets[2], f"detaug's {OURS}, run 1", first)
    title = f"run 2, same seed, a worker killed after batch {KILLED_AT + 1}"
    _draw_second(sheets[3], title, first, _run(OURS, kill=True), killed_at=KILLED_AT)
    file.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(file, dpi=100)


def _draw_first(sheet: Any, title: str, batches: list[Batch]) -> None:
    sheet.suptitle(title, x=0.01, ha="left", fontsize=11)
    for axes, (_, plane) in zip(sheet.subplots(1, SHOWN), batches, strict=True):
        _draw_plane(axes, plane)
        axes.spines[:].set_visible(False)


def _draw_second(
    sheet: Any,
    title: str,
    first: list[Batch],
    batches: list[Batch],
    killed_at: int | None = None,
) -> None:
    """Draw a run with frames that show whether each batch is that of the first run.

    Args:
        sheet: the part of the picture.
        title: of the run.
        first, batches: of the first run and of this one.
        killed_at: the batch after which a worker was killed; a cross marks it.
    """
    equal = [a[0] == b[0] for a, b in zip(first, batches, strict=True)]
    title += f": {sum(equal)} of {len(equal)} batches the same, byte for byte"
    colour = BLUE if all(equal) else RED
    sheet.suptitle(title, x=0.01, ha="left", fontsize=11, color=colour)
    for number, axes in enumerate(sheet.subplots(1, SHOWN)):
        _draw_plane(axes, batches[number][1])
        axes.spines[:].set(color=BLUE if equal[number] else RED, linewidth=3)
        if number == killed_at:
            axes.text(
                0.97,
                0.95,
                "✕ SIGKILL",
                transform=axes.transAxes,
                ha="right",
                va="top",
                fontsize=9,
                fontweight="bold",
                color="white",
                bbox={"facecolor": RED, "edgecolor": "none", "pad": 2},
            )


def _draw_plane(axes: Any, plane: np.ndarray) -> None:
    axes.imshow(plane, cmap="gray", vmin=-1.5, vmax=2)
    axes.set_xticks([])
    axes.set_yticks([])


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
